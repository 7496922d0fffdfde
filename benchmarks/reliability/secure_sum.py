"""The cost of a secure sum, in bytes and seconds, and how near it is to the plain mean.

    python benchmarks/reliability/secure_sum.py --json benchmarks/results/secure_sum.json

Clients send 100,100 numbers that they draw, float64, and train nothing. All run in one process;
seconds are processor time, of all clients together divided by their number, and of the server. In
half of the exchanges clients drop out before their keys, their letters, their upload, their shares.
In the signed mode clients sign what they saw, and the threshold is one more, above two thirds.
"""

import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag
from harness.machine import machine, write

import fgl
from fgl import Method, Training
from fgl.federation import Round
from fgl.federation.method.compose import unsealed
from fgl.privacy.signatures import signing_key
from fgl.transforms import Signatures, secure_sum, summed_rounds
from fgl.transforms.secure_sum.messages import NAMES, PLAIN, ROUNDS, SIGNED

BITS = 28
KINDS = ("plain", "secure", "secure with dropouts", "signed")


def drawing(size: tuple[int, int]) -> Method:
    """A method whose clients send numbers of their own: another vector for every client."""

    def send(params: Any, context: Any, state: Any, graph: fgl.Graph) -> Any:
        generator = torch.Generator().manual_seed(graph.num_nodes)
        drawn = {
            name: torch.randn(value.shape, generator=generator, dtype=value.dtype)
            for name, value in params.items()
        }
        return {"model": drawn, "num_examples": torch.tensor(graph.num_nodes)}, state

    model = torch.nn.Linear(*size).double()
    return replace(fgl.fedavg(model, train=Training(num_steps=0)), send=send)


def timed(method: Method, spent: dict[str, float]) -> Method:
    """The method, whose processor time is added up: of its clients and of its server."""

    def watch(name: str, function: Callable[..., Any]) -> Any:
        def call(*given: Any) -> Any:
            start = time.process_time()
            made = function(*given)
            spent[name] += time.process_time() - start
            return made

        return call

    parts = {name: watch("clients", getattr(method, name)) for name in ("receive", "send")}
    parts |= {name: watch("server", getattr(method, name)) for name in ("accept", "aggregate")}
    return replace(unsealed(method), **parts)


def lost(number: int) -> Callable[[int, int], bool]:
    """Client k < 4 drops out before the k-th message of every second exchange."""
    return lambda index, client: index // ROUNDS % 2 == 1 and client == index % ROUNDS


def keys(number: int) -> Signatures:
    """Everybody's keys, for clients that are known by their number of nodes."""
    own = [bytes([client + 1]) * 32 for client in range(number)]
    public = {client: signing_key(secret) for client, secret in enumerate(own)}
    return Signatures(public, lambda graph: own[graph.num_nodes - 1])


def costs(history: list[Round], spent: dict[str, float], number: int) -> dict[str, float]:
    """Per round of the method."""
    rounds = len(history)
    return {
        "bytes_up_per_client": sum(r.bytes_up for r in history) / rounds / number,
        "bytes_down_per_client": sum(r.bytes_down for r in history) / rounds / number,
        "seconds_per_client": spent["clients"] / rounds / number,
        "seconds_of_the_server": spent["server"] / rounds,
    }


def case(number: int, exchanges: int, size: tuple[int, int]) -> dict[str, Any]:
    edges = torch.zeros(2, 0, dtype=torch.int64)
    clients = [
        fgl.Graph(torch.ones(k + 1, size[0], dtype=torch.float64), edges) for k in range(number)
    ]
    threshold, method = 2 * number // 3, drawing(size)
    plain, hidden, dropping, signing = (defaultdict[str, float](float) for _ in range(4))
    mean = fgl.run(timed(method, plain), clients, num_rounds=exchanges)
    summed = secure_sum(method, threshold=threshold, bits=BITS)
    whole = fgl.run(timed(summed, hidden), clients, num_rounds=ROUNDS * exchanges)
    signed = secure_sum(method, threshold=threshold + 1, bits=BITS, signed=keys(number))
    vouched = fgl.run(timed(signed, signing), clients, num_rounds=signed.rules.exchange * exchanges)
    far = [distance(whole, mean), distance(vouched, mean)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # clients that come back too late
        some = fgl.run(
            timed(summed, dropping), clients, num_rounds=ROUNDS * exchanges, dropouts=lost(number)
        )
    last = exchanges % 2 == 0  # the last exchange was one with dropouts
    absent = fgl.run(
        method, clients, num_rounds=1, dropouts=lambda index, client: last and client < 3
    )
    far.append(distance(some, absent))
    rounds = summed_rounds(whole.history)
    return {
        "clients": number,
        "threshold": threshold,
        "numbers": sum(value.numel() for value in method.initial().values()),
        "plain": costs(mean.history, plain, number),
        "secure": costs(rounds, hidden, number),
        "secure with dropouts": costs(summed_rounds(some.history), dropping, number),
        "signed": costs(summed_rounds(vouched.history, signed.rules.exchange), signing, number),
        "bytes_up_by_message": by_message(whole, PLAIN, number),
        "bytes_up_by_message_signed": by_message(vouched, SIGNED, number),
        "farthest_in_last_digits": max(far) * 2.0**BITS,
    }


def by_message(result: fgl.Result, phases: tuple[int, ...], number: int) -> dict[str, float]:
    """Bytes up of one client in each round of an exchange."""
    rounds = zip(phases, result.history, strict=False)
    return {NAMES[phase]: record.bytes_up / number for phase, record in rounds}


def distance(one: Any, other: Any) -> float:
    """The largest difference of two models."""
    got, want = one.outbox[0]["model"], other.outbox[0]["model"]
    return max(float((got[name] - value).abs().max()) for name, value in want.items())


def main(argv: list[str] | None = None) -> int:
    args = arguments(
        argv, clients=[10, 30], exchanges=4, size=flag((1000, 100), nargs=2, metavar=("IN", "OUT"))
    )
    torch.set_num_threads(1)
    report: dict[str, Any] = {"benchmark": "secure sum", "bits": BITS, "cases": []}
    for number in args.clients:
        found = case(number, args.exchanges, tuple(args.size))
        report["cases"].append(found)
        print(f"{number} clients, {found['numbers']:,} numbers:")
        for kind in KINDS:
            each = found[kind]
            print(
                f"  {kind}: {each['bytes_up_per_client'] / 1e6:.3f} MB up and "
                f"{each['bytes_down_per_client'] / 1e6:.3f} MB down a client, "
                f"{each['seconds_per_client']:.3f} s a client, "
                f"{each['seconds_of_the_server']:.3f} s at the server"
            )
        print(f"  farthest from the plain mean: {found['farthest_in_last_digits']:.3f} last digits")
    report["machine"] = machine()
    if args.json:
        write(report, args.json)
    return 0 if all(c["farthest_in_last_digits"] <= 0.51 for c in report["cases"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
