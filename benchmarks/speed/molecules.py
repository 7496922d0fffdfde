"""Rounds on molecules: PyG's loaders and a loop as a user writes them, our loop, our batch.

    python benchmarks/speed/molecules.py --quick                   made-up molecules, no rdkit
    python benchmarks/speed/molecules.py --json benchmarks/results/molecules.json
    python benchmarks/speed/molecules.py --report                  docs/speed.md, from that file

FedAvg on ESOL (FGL_DATA, and the extra `molecules`): ten clients, one epoch of Adam a round in
minibatches of 32, two GINE layers of PyG, without evaluation. The variants take turns.
"""

import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag
from harness.machine import RESULTS, in_turn, kept, machine, ratio, seconds, write
from harness.report import publish
from speed.by_hand import rounds_by_hand
from torch.nn.functional import mse_loss
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_mean_pool

import fgl

CLIENTS, BATCH, WIDTH, ROUNDS = 10, 32, 64, 3
ADAM = partial(torch.optim.Adam, lr=0.001)


class Net(torch.nn.Module):
    """A network for molecules, as PyG's users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.start = torch.nn.Linear(9, WIDTH)
        self.convs = torch.nn.ModuleList(GINEConv(self.layers(), edge_dim=3) for _ in range(2))
        self.out = torch.nn.Linear(WIDTH, 1)

    def layers(self) -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)
        )

    def forward(self, x: Any, edge_index: Any, edge_attr: Any, batch: Any) -> Any:
        x = self.start(x)
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr).relu()
        return self.out(global_mean_pool(x, batch))


def molecules(quick: bool) -> fgl.Graph:
    if quick:
        graphs, y, _ = fgl.data.small_molecules(600)
    else:
        graphs, y, _ = fgl.data.load_molecules("esol")
    return fgl.Graph.join(graphs, y)


def plain(clients: list[fgl.Graph]) -> Callable[[], None]:
    """Rounds as a user of PyG writes them: a loader and a deep copy for each client."""
    loaders, sizes = [], []
    for client in clients:
        each = [client.select(torch.tensor([k])) for k in range(client.num_graphs)]
        data = [Data(g.x, g.edge_index, g.entries("edge_attr"), y=g.y) for g in each]
        loaders.append(DataLoader(data, batch_size=BATCH, shuffle=True))  # type: ignore[arg-type]
        sizes.append(len(data))

    def loss(own: Any, batch: Any) -> Any:
        out = own(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
        return mse_loss(out.squeeze(1), batch.y)

    return rounds_by_hand(Net(), loaders, sizes, loss=loss, optimizer=ADAM, rounds=ROUNDS)


def ours(clients: list[fgl.Graph], at_once: int | str) -> Callable[[], Any]:
    batches = partial(fgl.federation.graph_minibatches, batch_size=BATCH, num_epochs=1)
    train = fgl.Training(ADAM, batches=batches)
    method = fgl.fedavg(Net(), train=train, target=fgl.targets.REGRESSION)
    how: Any = {"num_rounds": ROUNDS, "clients_at_once": at_once}
    return lambda: fgl.run(method, clients, **how)


def table(report: dict[str, Any]) -> str:
    """The table of the page."""
    at = report["machine"]
    lines = [f"{at['cpu']}, one thread, torch {at['torch']}, commit {at['commit']}.", ""]
    lines += ["| way | milliseconds of a round | times as fast as PyG's loop |", "|---" * 3 + "|"]
    for way, each in report["ways"].items():
        low, high = each["range"]
        lines.append(f"| {way} | {each['ms']} | {each['faster']} ({low} to {high}) |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv, turns=5, quick=flag(False, "made-up molecules"), report=False)
    if args.report:
        publish("molecules", table(kept(RESULTS / "molecules.json")))
        return
    torch.set_num_threads(1)
    whole = molecules(args.quick)
    parts = fgl.data.partitions.random_partition(whole, CLIENTS)
    clients = fgl.data.partitions.partition_graph(whole, parts)
    variants = {
        "PyG's loop": plain(clients),
        "loop": ours(clients, 1),
        "batch": ours(clients, "all"),
        "as chosen": ours(clients, "auto"),
    }
    spent = in_turn({name: partial(seconds, run) for name, run in variants.items()}, args.turns)
    ways = {}
    for name, each in spent.items():
        faster, spread = ratio(spent["PyG's loop"], each)
        milliseconds = round(1000 * statistics.median(each) / ROUNDS, 1)
        ways[name] = {"ms": milliseconds, "faster": faster, "range": spread}
        print(name, ways[name], flush=True)
    write({"benchmark": "molecules", "machine": machine(), "ways": ways}, args.json)


if __name__ == "__main__":
    main()
