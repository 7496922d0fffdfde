"""Privacy records in a server's state: each client's number of replies per noise mechanism."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..checks import reject_if
from .accountant import composed_epsilon

Record = Mapping[str, Tensor]
KINDS = ("", "local_gaussian", "central_gaussian", "summed_gaussian", "per_example_gaussian")
NEIGHBOURS = {
    "local_gaussian": "any two data sets of one client",
    "central_gaussian": "one client's update and zeros, for everybody but the server",
    "summed_gaussian": "one client's update and zeros, for the server too",
    "per_example_gaussian": "one example more or fewer",
}
APART = (
    "Load its model, model.load_state_dict(start.outbox[0]['model']), leave start out, and give "
    "both epsilons side by side"
)
F64 = torch.float64


class Noise(NamedTuple):
    """The mechanism of one reply: all parameters on which epsilon depends.

    Args:
        noise_multiplier: see `fgl.privacy.epsilon`; 0 gives no protection.
        sample_rate: probability with which an example is in a step.
        steps: number of times that the mechanism is used in one reply.

    Example:
        >>> Noise(2.0)
        Noise(noise_multiplier=2.0, sample_rate=1.0, steps=1.0)
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    steps: float = 1.0


NONE = Noise(0.0)  # the noise of a reply without protection


def with_noise(
    record: Record,
    noise: Noise,
    *,
    num_clients: int,
    kind: str = "",
    colluders: int = 0,
    delta: float | None = None,
) -> dict[str, Tensor]:
    """Return a record in which earlier replies keep their noise and later replies have this noise.

    Args:
        record: a server's ``state["privacy"]``; empty for the first run.
        noise: noise of all replies that are added to the returned record.
        num_clients: number of clients in the federation.
        kind: the transform that adds the noise, from `KINDS`. ``""`` means replies without noise.
            In one record, all replies with noise must be of the same kind. A record may also
            contain replies without noise.
        colluders: number of clients that may collude; epsilon does not count on their noise.
        delta: the delta for which `spent_epsilon` computes epsilon; by default the record's delta.

    Raises:
        ValueError: if the kind or the number of colluders in the record differs from the argument.
            No single epsilon covers all replies in this case. The data sets that epsilon compares
            depend on the transform. The noise that an observer knows depends on the colluders.

    Example:
        >>> first = with_noise({}, Noise(1.0), num_clients=2, kind="central_gaussian", delta=1e-5)
        >>> later = with_noise(with_answers(first, {0: 1}), Noise(9.0), num_clients=2)
        >>> later["earlier_noise"].tolist(), later["earlier_rounds"].tolist()
        ([1.0], [[1.0, 0.0]])
    """
    rounds = _by_noise(record)
    before, uncredited = _kind(record), int(record.get("colluders", torch.tensor(0)))
    both = before and kind
    want = f"start to be a run of {kind}, whose epsilon compares {NEIGHBOURS.get(kind)}"
    got = (
        f"one of {before}, which compares {NEIGHBOURS.get(before)}: no sum of the two is an epsilon"
    )
    reject_if(both and before != kind, want, f"{got}. {APART}")
    reason = "as in the run that start names, whose sums were credited with the noise of all others"
    want = f"colluders to be {uncredited}, {reason}"
    reject_if(both and uncredited != colluders, want, f"{colluders}. {APART}")
    current = rounds.pop(noise, torch.zeros(num_clients, dtype=torch.int64))
    current = current.to(F64) if kind == "summed_gaussian" else current
    earlier = {each: times for each, times in rounds.items() if times.any()}
    delta = float(record.get("delta", torch.tensor(math.nan))) if delta is None else delta
    numbers = {"noise_multiplier": noise.noise_multiplier, "delta": delta}
    if kind == "per_example_gaussian" or noise.steps != 1 or noise.sample_rate != 1:
        numbers |= {"steps": noise.steps, "sample_rate": noise.sample_rate}
    out = {"rounds": current, **{name: torch.tensor(v, dtype=F64) for name, v in numbers.items()}}
    if _kind(out) != (kind or before):
        out["kind"] = torch.tensor(KINDS.index(kind or before))
    if uncredited or colluders:
        out["colluders"] = torch.tensor(uncredited if before else colluders)
    if earlier:
        columns = torch.tensor(list(earlier), dtype=F64).unbind(1)
        out |= dict(zip(("earlier_noise", "earlier_rate", "earlier_steps"), columns, strict=True))
        out["earlier_rounds"] = torch.stack([times.to(F64) for times in earlier.values()])
    return out


def with_answers(record: Record, times: Mapping[int, float]) -> dict[str, Tensor]:
    """Return a copy of a record, to which each client's replies with the current noise are added.

    Example:
        >>> record = with_noise({}, Noise(1.0), num_clients=2, kind="local_gaussian", delta=1e-5)
        >>> with_answers(record, {1: 2})["rounds"]
        tensor([0, 2])
    """
    rounds = record["rounds"].clone()
    for client, more in times.items():
        rounds[client] += more
    return {**record, "rounds": rounds}


def spent_epsilon(record: Record) -> float:
    """The largest epsilon of any client; a client's epsilon is computed from all its replies.

    A client's replies can have different kinds of noise. Without sampling, all replies of a client
    together are equivalent to one Gaussian mechanism with a noise multiplier m: ``1 / m^2`` is the
    sum of ``rounds / noise_multiplier^2`` over the kinds of noise. With sampling, the privacy
    losses of all replies of the client are composed on a grid.

    Args:
        record: the record from `with_noise`.

    Raises:
        ImportError: if the extra `private` is not installed.

    Example:
        >>> one = with_noise({}, Noise(1.0), num_clients=2, kind="central_gaussian", delta=1e-5)
        >>> both = with_noise(with_answers(one, {0: 2}), Noise(10.0), num_clients=2)
        >>> round(spent_epsilon(with_answers(both, {0: 1, 1: 1})), 3)
        6.593
    """
    delta, rounds = float(record["delta"]), _by_noise(record)
    table = torch.stack([times.to(F64) for times in rounds.values()], 1)  # [K, M]
    return max(_of_several(dict(zip(rounds, row, strict=True)), delta) for row in _largest(table))


def _by_noise(record: Record) -> dict[Noise, Tensor]:
    """Map each noise in a record to each client's number of replies with this noise, ``[K]``.

    The current noise is the first key.
    """
    if not record:
        return {}
    one = torch.tensor(1.0)
    names = ("noise_multiplier", "sample_rate", "steps")
    out = {Noise(*(float(record.get(name, one)) for name in names)): record["rounds"]}
    if "earlier_rounds" in record:
        columns = (record[f"earlier_{name}"].tolist() for name in ("noise", "rate", "steps"))
        for number, numbers in enumerate(zip(*columns, strict=True)):
            out[Noise(*numbers)] = record["earlier_rounds"][number]
    return out


def _kind(record: Record) -> str:
    """The transform that added the noise of a record.

    Old records do not name the transform, but their fields determine it.
    """
    if "kind" in record:
        return KINDS[int(record["kind"])]
    if "steps" in record:
        return "per_example_gaussian"
    return "summed_gaussian" if "rounds" in record and record["rounds"].is_floating_point() else ""


def _largest(table: Tensor) -> Iterable[list[float]]:
    """The distinct rows of ``[K, M]``, without rows that another row dominates.

    A row dominates another row if no entry is smaller and at least one entry is larger.
    """
    rows: Any = table.unique(dim=0)
    for row in rows:
        if not bool(((rows >= row).all(1) & (rows > row).any(1)).any()):
            yield row.tolist()


def _of_several(rounds: Mapping[Noise, float], delta: float) -> float:
    uses: dict[tuple[float, float], int] = {}
    for noise, each in rounds.items():
        times, used = _whole(noise, each)
        kind = used.noise_multiplier, used.sample_rate
        uses[kind] = uses.get(kind, 0) + times
    return composed_epsilon(uses, delta=delta)


def _whole(noise: Noise, rounds: float) -> tuple[int, Noise]:
    """Round the number of uses of the mechanism up to an integer, and adapt the noise multiplier.

    The noise multiplier grows such that the sum of ``1 / noise_multiplier^2`` over all uses stays
    the same.
    """
    times = math.ceil(rounds) * int(noise.steps)
    factor = math.sqrt(math.ceil(rounds) / rounds) if rounds else 1.0
    return times, noise._replace(noise_multiplier=noise.noise_multiplier * factor)
