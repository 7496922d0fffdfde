"""FedGCN's exchange of rows by a secure sum: a client learns only the rows that it requests."""

import math
import secrets
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .. import federation as fed
from ..checks import Several, reject_if
from ..federation import Means, Message, Method, Outbox, Params, State, Training
from ..graph import Graph
from ..privacy import masks as parts
from .secure_sum.client import of_seed
from .secure_sum.transform import secure_sum

BITS = 20  # bits of the fraction: the error of a row is at most 2^-21 per client
PAD = 46  # bits of a pad; means of float64 numbers keep them exact


class AddsUp(Protocol):
    """A function that `fgl.data.neighbour_sums` accepts as its `total`."""

    def __call__(self, graphs: Sequence[Graph], /) -> tuple[list[Tensor], int]: ...


def secure_rows(*, threshold: Several, unprotected: bool = False) -> AddsUp:
    """Build a function that sums rows securely: the argument `total` of `fgl.data.neighbour_sums`.

    Each row is a sum with one term per client. `secure_sum` adds the terms, so the server learns
    only the sums. The client that requests a row also adds secret random numbers, called pads, to
    its own term: one pad for each entry. Pads are multiples of ``2^-20`` between ``-2^25`` and
    ``2^25``. So neither the server nor another client learns the row itself. The requesting client
    subtracts its pads from the sum. The requests are public. A client requests rows by ids of
    nodes: the ids of its own nodes that have neighbours at other clients, and with two hops also
    the ids of these neighbours.

    If a row is the sum over a single neighbour, the requesting client still learns the features of
    this neighbour. Since pads are bounded, the padded value of a number x reveals something about x
    with probability ``|x| / 2^26``.

    Args:
        threshold: as for `secure_sum`.
        unprotected: as for `secure_sum`. If true, pads are also derived from the run's seed.

    Returns:
        ``total(graphs) -> (rows, num_bytes)``. The argument is the list of graphs that
        `fgl.data.asked_rows` returns. The results are the requested rows of each client, float64
        ``[rows, F + 1]``, and the number of bytes of all uploads and downloads.

    Raises:
        ValueError: as `secure_sum`. The returned function raises a ValueError if a client drops
            out.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> members = [torch.tensor([0]), torch.tensor([1]), torch.tensor([2])]
        >>> total = secure_rows(threshold=2)
        >>> fgl.data.neighbour_sums(graph, members, hops=1, total=total).clients[0].x
        tensor([[0.5000, 0.4082, 0.0000]])

    Source: Yao et al., FedGCN, https://arxiv.org/abs/2201.12433; Bonawitz et al. 2017,
    https://eprint.iacr.org/2017/281
    """

    def total(graphs: Sequence[Graph], /) -> tuple[list[Tensor], int]:
        width = graphs[0].num_features
        rows = [_rows(own) for own in graphs]
        method = padded_rows(len(rows[0]), width, unprotected=unprotected)
        bound = 2.0 ** (PAD - BITS)
        summed = secure_sum(
            method, threshold=threshold, bits=BITS, bound=bound, unprotected=unprotected
        )
        with warnings.catch_warnings():
            if unprotected:
                warnings.simplefilter("ignore")
            result = fed.run(summed, graphs, num_rounds=summed.rules.exchange)
        lost = {client for each in result.history for client in each.dropped}
        got = f"none of {sorted(lost)}"
        reject_if(lost or "num_clients" not in result.outbox[0], "sums over all clients", got)
        sums = []
        for client, (own, mine) in enumerate(zip(graphs, rows, strict=True)):
            params = method.deploy(result.outbox[client], result.client_states[client], own)
            sums.append(params["rows"][mine])
        return sums, sum(each.bytes_up + each.bytes_down for each in result.history)

    return total


@fed.layer
def padded_rows(num_rows: int, width: int, *, unprotected: bool = False) -> Method:
    """A method in which each client sends its part of all requested rows.

    A client adds a pad to the rows that it requested. A round is an exchange of rows without
    training. For a client, `deploy` returns a tensor with the summed rows that this client
    requested. All other rows of the tensor are 0.

    Args:
        num_rows: total number of rows that clients request.
        width: width of a row.
        unprotected: derive pads from the run's seed; such pads hide nothing.

    Example:
        >>> padded_rows(3, 2).initial()["rows"].shape
        torch.Size([3, 2])
    """
    model = nn.Module()
    model.register_parameter(
        "rows", nn.Parameter(torch.zeros(num_rows, width, dtype=torch.float64))
    )
    base = fed.fedavg(model, train=Training(num_steps=0))

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        mine = _rows(graph)
        seed = of_seed(parts.KEY) if unprotected else secrets.token_bytes(parts.KEY)
        x: Any = graph.x
        own = graph.adj.astype(torch.float64) @ x
        sums = own[graph.num_nodes - num_rows :].cpu()
        sums[mine] += _pad(seed, int(mine.sum()), width)
        message: Message = {"model": {"rows": sums}, "num_examples": torch.tensor(1)}
        return message, {**state, "pad": parts.as_tensor(seed)}

    def with_count(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        counts = {"num_clients": torch.tensor(len(means.clients))}
        return {client: {**message, **counts} for client, message in outbox.items()}, new

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        means: Any = message["model"]
        rows = torch.zeros_like(means["rows"])
        if "pad" not in state:
            return {"rows": rows}
        mine, scale = _rows(graph), 2.0**BITS
        total = (means["rows"][mine] * float(message["num_clients"]) * scale).round() / scale
        rows[mine] = total - _pad(parts.as_bytes(state["pad"]), int(mine.sum()), width)
        return {"rows": rows}

    # The size of pads is intended, and the weights are all 1.
    changed: dict[str, Any] = {"send": send, "deploy": deploy}
    changed["aggregate"] = fed.after(base.aggregate, with_count)
    return replace(base, **changed, rules=replace(base.rules, max_change=math.inf, max_examples=1))


def _rows(graph: Any) -> Tensor:
    """A bool mask ``[R]`` of the rows that the client requested."""
    mask, x = graph.train_mask, graph.x
    num_own = int((x[:, -1] != 0).sum())
    return mask[num_own:].cpu()  # type: ignore[no-any-return]


def _pad(seed: bytes, count: int, width: int) -> Tensor:
    """Multiples of ``2^-20`` drawn uniformly from ``+-2^25``."""
    words = parts.mask(seed, count * width) >> (64 - PAD)
    return words.double().view(count, width) * 2.0**-BITS
