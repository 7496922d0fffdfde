"""Ways out that errors name: each is taken here, and works."""

import dataclasses
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from federations import CLASSES, FEATURES, fedavg, graph, graphs, model
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import HeteroData

import fgl
from fgl.data import partitions

GRAPH, CLIENTS, TRAIN = graph(40), graphs(), fgl.Training(num_steps=1)
TASK = fgl.tasks.node_task(GRAPH, CLIENTS, model(), TRAIN)
OWNERS = torch.arange(40) % 2


def hetero() -> HeteroData:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(9, 3), torch.rand(9, 5)
    data["user"].y = torch.arange(9) % 2
    data["user", "buys", "item"].edge_index = torch.arange(9).repeat(2, 1)
    return data


def collection() -> fgl.Graph:
    small, y = fgl.data.small_graphs(12, num_features=FEATURES)
    return fgl.data.splits.random_split(fgl.Graph.join(small, y))


def numbers() -> list[fgl.Graph]:
    return [own.replace(y=own.y.float(), num_classes=None) for own in CLIENTS]  # type: ignore[union-attr]


def runs(method: fgl.Method, clients: Any = CLIENTS) -> fgl.Result:
    return fgl.run(method, clients, num_rounds=1)


def lazy() -> nn.Module:
    net = pyg.SAGEConv(-1, CLASSES)
    net(torch.as_tensor(GRAPH.x), GRAPH.edge_index)
    return net


def pairs() -> list[fgl.Graph]:
    ratings = fgl.data.ratings()
    whole = fgl.data.splits.split_by_time(ratings, (ratings.edge_attr[:, 0] > 0).float())  # type: ignore[index]
    return partitions.partition_graph(whole, partitions.random_partition(whole, 2))


def of_other_widths() -> fgl.Result:
    """Clients of 6 and 8 features share a layer."""
    wide = torch.cat([torch.as_tensor(GRAPH.x), torch.ones(40, 2)], 1)

    def models(own: fgl.Graph) -> nn.Module:
        return nn.Sequential(nn.Linear(own.num_features, 4), nn.Linear(4, CLASSES))

    class Net(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.enter, self.shared = nn.Linear(width, 4), nn.Linear(4, CLASSES)

        def forward(self, x: Any, adj: Any) -> Any:
            return self.shared(self.enter(x))

    method = fgl.methods.fedper(
        fedavg(Net(FEATURES)), shared=["shared"], models=lambda own: Net(own.num_features)
    )
    return runs(method, [GRAPH, GRAPH.replace(x=wide)])


# A piece of the source of an error, to the call that it names.
ADVICE: dict[str, Callable[[], Any]] = {
    "{call}(task.fedavg{rest})": lambda: fgl.methods.fedprox(TASK.fedavg, mu=0.1),
    "{call}(fgl.methods.{value}(task.fedavg{own}){rest})": lambda: fgl.methods.local(
        fgl.methods.moon(TASK.fedavg)
    ),
    "{call}({value}(task.fedavg{own}){rest})": lambda: fgl.methods.local(
        fgl.methods.ring(TASK.fedavg)
    ),
    ".nonzero()[:, 0] for k in range(parts.max() + 1)]": lambda: partitions.partition_graph(
        GRAPH, [(k == OWNERS).nonzero()[:, 0] for k in range(OWNERS.max() + 1)]
    ),
    "fgl.data.splits.edge_split(graph) makes one": lambda: fgl.tasks.link_task(
        [fgl.data.splits.edge_split(GRAPH)], fgl.nn.VGAE(FEATURES, 8, 4), TRAIN
    ),
    "fgl.tasks.node_task and fgl.tasks.pair_task take any model": lambda: fgl.tasks.pair_task(
        pairs(), fgl.nn.PairNet(1, 8, 1, edge_dim=1), TRAIN
    ),
    "fgl.nn.Embedded(model, before=...) takes it": lambda: runs(
        fgl.methods.moon(fedavg(fgl.nn.Embedded(pyg.GCN(FEATURES, 8, 2, CLASSES), "convs.1")))
    ),
    "as by fgl.nn.GIN": lambda: runs(fgl.fedavg(fgl.nn.GIN(FEATURES, 8, 2)), [collection()]),
    "target=fgl.targets.ANSWERS take one": lambda: runs(
        fgl.fedavg(fgl.nn.GCN(FEATURES, 8, 1), target=fgl.targets.ANSWERS),
        [own.replace(y=(own.y > 0).float(), num_classes=None) for own in CLIENTS],  # type: ignore[operator, union-attr]
    ),
    "fgl.targets.REGRESSION or ANSWERS, but got": lambda: runs(
        fgl.fedavg(fgl.nn.GCN(FEATURES, 8, 1), target=fgl.targets.REGRESSION), numbers()
    ),
    "data, both=True), or PyG's ToUndirected": lambda: fgl.data.from_hetero(hetero(), both=True),
    "model(graph.x, graph.edge_index)": lambda: runs(fgl.fedavg(lazy())),
    "fgl.methods.fedper(shared=..., models=...) takes clients that": of_other_widths,
    "dataclasses.replace(task, whole=graph)": lambda: fgl.tasks.centralized(
        dataclasses.replace(fgl.tasks.node_task(None, CLIENTS, model(), TRAIN), whole=GRAPH)
    ),
    "lambda seed: task says that this is meant": lambda: fgl.compare(
        {"a": lambda task: task.fedavg}, lambda seed: TASK, num_rounds=1, seeds=[0]
    ),
    "as Here(task, at_once=1, score=score)": lambda: fgl.run(
        TASK.fedavg, fgl.federation.Here(TASK, at_once=1), num_rounds=1
    ),
}


def test_a_way_out_that_an_error_names_works() -> None:
    for advice, call in ADVICE.items():
        assert call() is not None, advice


def test_the_source_has_each_piece_of_advice() -> None:
    root = Path(fgl.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py")))
    text = re.sub(r'"\s*\n\s*f?"', "", text)  # a sentence over several lines
    missing = [advice for advice in ADVICE if advice not in text and advice.strip('"') not in text]
    assert not missing


def test_every_name_of_an_error_exists() -> None:
    """Whatever an error calls ``fgl.something`` can be called by that name."""
    for path in Path(fgl.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in set(re.findall(r"[^\w.@](fgl(?:\.[A-Za-z_]\w*)+)", text)):
            value: Any = fgl
            with suppress(ImportError):  # of a name that needs an extra
                for part in name.split(".")[1:]:
                    value = getattr(value, part, None)
            assert value is not None, f"{path.name}: {name}"
