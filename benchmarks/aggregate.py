"""Aggregates whose bits depend on values alone, against torch's products, whose bits do not.

    python benchmarks/aggregate.py --quick --json out.json     under a minute
    python benchmarks/aggregate.py --json benchmarks/results/aggregate.json

The tensors of a two-layer GCN for Cora, of a GIN (20 of 64 x 64) and of a first layer of SAGE
(1433 x 512; not at 1,000), at 10, 100 and 1,000 clients. Both ways are alternated, and every ratio
has a name: ``mean/threads=1/K=10/GCN/list/ours_over_product`` is how many times longer ours takes
than `tensordot` for a stack, `add_` with a factor for a list, `matmul` and `lerp` for a mix. One
thread is timed by the processor's clock, which others on the machine disturb less; more of them
(``--threads 1 2``) by the wall's, which asks for a machine of one's own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from harness.flags import arguments, flag
from harness.machine import alternated, machine, write
from torch import Tensor

from fgl.aggregate import mean, mix, server_step

MODELS = {
    "GCN": [(1433, 64), (64,), (64, 7), (7,)],
    "GIN": [(64, 64)] * 20,
    "SAGE": [(1433, 512)],
}
MOST = 4e8  # entries of all clients
Params = dict[str, Tensor]


def product_mean(stack: dict[str, Any], weight: Tensor) -> Params:
    """Means by whatever is fastest where the tensors lie."""
    share = weight.double() / weight.double().sum()
    out = {}
    for name, value in stack.items():
        if isinstance(value, Tensor):
            out[name] = torch.tensordot(share.to(value), value, dims=1)
            continue
        out[name] = torch.zeros_like(value[0])
        for part, tensor in zip(share.tolist(), value, strict=True):
            out[name].add_(tensor, alpha=part)
    return out


def product_mix(stack: Params, matrix: Tensor, own: float) -> Params:
    """Mixes by a product in float32."""
    out = {}
    for name, value in stack.items():
        flat = value.reshape(len(value), -1)
        out[name] = torch.lerp(matrix @ flat, flat, own).view(value.shape)
    return out


def models(kind: str, clients: int) -> tuple[Params, dict[str, list[Tensor]]]:
    """All clients' tensors, stacked, and each in a place of its own."""
    generator = torch.Generator().manual_seed(0)
    stack = {
        f"{i}": torch.randn(clients, *shape, generator=generator)
        for i, shape in enumerate(MODELS[kind])
    }
    return stack, {name: [own.clone() for own in value] for name, value in stack.items()}


def spent(call: Callable[[], Any], threads: int) -> float:
    """How long a call takes."""
    clock = time.process_time if threads == 1 else time.perf_counter
    start = clock()
    call()
    return clock() - start


def compare(kind: str, clients: int, threads: int, repeats: int) -> dict[str, float]:
    """Milliseconds and ratios of one kind of model."""
    torch.set_num_threads(threads)
    stack, each = models(kind, clients)
    weight = torch.randint(1, 100, (clients,), generator=torch.Generator().manual_seed(1))
    entries = sum(value.numel() for value in stack.values())
    inner = max(1, int(2e6 / entries))
    pairs: dict[str, tuple[Any, Any]] = {
        "mean/{}/stack": (lambda: mean(stack, weight), lambda: product_mean(stack, weight)),
        "mean/{}/list": (lambda: mean(each, weight), lambda: product_mean(each, weight)),
    }
    matrix = torch.rand(clients, clients, generator=torch.Generator().manual_seed(2))
    matrix /= matrix.sum(1, keepdim=True)
    pairs["mix/{}/stack"] = (
        lambda: mix(stack, matrix, self_weight=0.05),
        lambda: product_mix(stack, matrix, 0.05),
    )
    out: dict[str, float] = {}
    for name, (ours, product) in pairs.items():
        times = max(3, min(repeats, int(2e9 / entries / (clients if "mix" in name else 8))))

        def bunch(call: Any) -> Any:
            return lambda: spent(lambda: [call() for _ in range(inner)], threads) / inner

        took = alternated({"ours": bunch(ours), "product": bunch(product)}, times)
        for a, b in zip(ours().values(), product().values(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        where = name.format(f"threads={threads}/K={clients}/{kind}")
        out |= {f"{where}/{way}_ms": round(1e3 * value, 4) for way, value in took.items()}
        out[f"{where}/ours_over_product"] = round(took["ours"] / took["product"], 2)
        print(where, out[f"{where}/ours_over_product"], round(1e3 * took["product"], 3), flush=True)
    if clients == 10:
        model = {name: value[0] for name, value in stack.items()}
        target = {name: value[1] for name, value in stack.items()}
        took = alternated(
            {"adam": lambda: spent(lambda: server_step(model, target, {}, rule="adam"), threads)},
            repeats,
        )
        out[f"server_step/threads={threads}/{kind}/adam_ms"] = round(1e3 * took["adam"], 4)
    return out


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(
        argv,
        quick=flag(False, "one thread, up to 100 clients"),
        clients=(10, 100, 1000),
        threads=(1,),
        repeats=flag(31, "alternations, fewer of long ones"),
    )
    numbers: dict[str, Any] = {}
    for threads in args.threads[:1] if args.quick else args.threads:
        for clients in args.clients[:2] if args.quick else args.clients:
            for kind in MODELS:
                if clients * sum(math.prod(shape) for shape in MODELS[kind]) < MOST:
                    numbers |= compare(kind, clients, threads, args.repeats)
    torch.set_num_threads(1)
    report = {"benchmark": "aggregate", "machine": machine(), **numbers}
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()
