"""Scripts of somebody who knows PyG: one client is a plain loop, and noise scores chance.

Five kinds of data as a user brings them: ratings of a `HeteroData`, a traffic forecast, molecules
with positions, a networkx graph with attributes, a knowledge graph. Loop and score are written
with torch, PyG and scikit-learn alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

import fgl

pyg = pytest.importorskip("torch_geometric")
metrics = pytest.importorskip("sklearn.metrics")
STEPS = 3
ADAM = partial(torch.optim.Adam, lr=0.01)
TRAIN = fgl.Training(ADAM, num_steps=STEPS)
Drawn = list[Tensor]


@dataclass
class Script:
    """A task with one client, and the same in plain PyTorch.

    Args:
        task: the task.
        model: what the loop trains: the model that the task was given, or its inner module.
        loss: ``(model, what the step drew) -> loss``.
        score: ``model -> score`` on the test examples.
        metric: its name in the history.
        chance: lowest and highest score on noise.
    """

    task: fgl.tasks.Task
    model: nn.Module
    loss: Callable[[Any, Any], Tensor]
    score: Callable[[Any], float]
    metric: str
    chance: tuple[float, float]


class Layers(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = pyg.nn.SAGEConv((-1, -1), width)
        self.conv2 = pyg.nn.SAGEConv((-1, -1), width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return out


class Rates(nn.Module):
    """The model of PyG's example of ratings (`hetero_link_pred.py`)."""

    def __init__(self, data: Any, width: int = 16) -> None:
        super().__init__()
        self.encoder = pyg.nn.to_hetero(Layers(width), data.metadata(), aggr="sum")
        self.lin1, self.lin2 = nn.Linear(2 * width, width), nn.Linear(width, 1)

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_label_index: Tensor) -> Tensor:
        z, (row, col) = self.encoder(x_dict, edge_index_dict), edge_label_index
        pairs = torch.cat([z["user"][row], z["movie"][col]], -1)
        out: Tensor = self.lin2(self.lin1(pairs).relu()).view(-1)
        return out


def ratings(folder: Path, noise: bool) -> Script:
    of, rev = ("user", "rates", "movie"), ("movie", "rev_rates", "user")
    data = pyg.data.HeteroData()
    data["user"].x, data["movie"].x = torch.eye(60), torch.eye(40)
    data[of].edge_index = (torch.rand(60, 40) < 0.3).nonzero().T
    user, movie = data[of].edge_index
    alike = (user % 2 == movie % 2).float()
    data[of].edge_label = torch.rand(len(user)).round() if noise else alike
    data = pyg.transforms.ToUndirected()(data)
    del data[rev].edge_label
    how = {"neg_sampling_ratio": 0.0, "edge_types": [of], "rev_edge_types": [rev]}
    train, val, test = pyg.transforms.RandomLinkSplit(0.1, 0.4, **how)(data)
    model = Rates(data)
    with torch.no_grad():  # PyG's lazy layers see data once
        model(train.x_dict, train.edge_index_dict, train[of].edge_label_index)
    graph = fgl.data.from_link_split(train, val, test)
    graph = graph.replace(x=graph.x.to_dense())  # type: ignore[union-attr]
    net = fgl.nn.Hetero(model, data.num_node_features, data.edge_types, target=of)

    def answer(model: Any, part: Any) -> Tensor:
        out: Tensor = model(train.x_dict, train.edge_index_dict, part[of].edge_label_index)
        return out

    return Script(
        fgl.tasks.pair_task([graph], net, TRAIN),
        model,
        lambda model, _: binary_cross_entropy_with_logits(
            answer(model, train), train[of].edge_label
        ),
        lambda model: metrics.roc_auc_score(test[of].edge_label, answer(model, test)),
        "test_auc",
        (0.42, 0.58),
    )


class Traffic(nn.Module):
    """A graph convolution of each time and a GRU over the times."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gru = pyg.nn.GCNConv(1, 8), nn.GRU(8, 8, batch_first=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        h = self.conv(x, edge_index, edge_weight).relu().transpose(1, 2)
        out: Tensor = self.out(self.gru(h.flatten(0, 1))[0][:, -1])
        return out.unflatten(0, (len(x), -1))


def traffic(folder: Path, noise: bool) -> Script:
    speed = torch.randn(8, 300)
    speed = speed if noise else (speed / 9 + torch.arange(300) / 4).sin()
    edges, weight = torch.randint(8, (2, 20)), torch.rand(20)
    model = Traffic()
    graph = fgl.Graph(speed[:, :, None], edges, edge_weight=weight, y=speed)
    graph = fgl.data.splits.windows(graph, 6, horizons=(1, 3))
    ends = {"train": range(210), "test": range(240, 300)}  # 70, 10 and 20 % of the times

    def part(name: str) -> tuple[Tensor, Tensor]:
        last = [t for t in range(5, 297) if t + 1 in ends[name] and t + 3 in ends[name]]
        reads = torch.stack([speed[:, t - 5 : t + 1].T for t in last])
        return reads[..., None], torch.stack([speed[:, [t + 1, t + 3]] for t in last])

    (seen, asked), (later, answers) = part("train"), part("test")

    def score(model: Any) -> float:
        out = model(later, edges, weight)
        return float(metrics.r2_score(answers.flatten(0, 1), out.flatten(0, 1)))

    target = fgl.targets.REGRESSION
    return Script(
        fgl.tasks.node_task(None, [graph], model, TRAIN, target=target),
        model,
        lambda model, _: mse_loss(model(seen, edges, weight), asked),
        score,
        "test_r2",
        (-0.3, 0.02),
    )


class Radius(nn.Module):
    """Edges of SchNet where pyg-lib, which has `radius_graph`, is not installed."""

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        near = (torch.cdist(pos, pos) < 2) & (batch[:, None] == batch)
        source, target = edges = (near & ~torch.eye(len(pos), dtype=torch.bool)).nonzero().T
        return edges, (pos[source] - pos[target]).norm(dim=1)


def atoms(folder: Path, noise: bool) -> Script:
    molecules = []
    for size in torch.randint(3, 7, (150,)).tolist():
        z, pos = torch.randint(1, 9, (size,)), 2 * torch.rand(size, 3)
        y = torch.randn(()) if noise else torch.pdist(pos).mean()
        molecules.append(pyg.data.Data(z=z, pos=pos, y=y))
    batch = pyg.data.Batch.from_data_list(molecules)
    model = pyg.nn.SchNet(8, 8, 2, 5, interaction_graph=Radius())
    graph = fgl.data.splits.random_split(fgl.Graph.from_pyg(batch), train=0.5, val=0.1)
    where: Any = graph.train_mask, graph.test_mask

    def answer(model: Any, mask: Tensor) -> Tensor:
        chosen = [own for own, chosen in zip(molecules, mask.tolist(), strict=True) if chosen]
        part = pyg.data.Batch.from_data_list(chosen)
        out: Tensor = model(part.z, part.pos, part.batch)[:, 0]
        return out

    return Script(
        fgl.tasks.graph_task([graph], [graph], model, TRAIN, target=fgl.targets.REGRESSION),
        model,
        lambda model, _: mse_loss(answer(model, where[0]), batch.y[where[0]]),
        lambda model: metrics.r2_score(batch.y[where[1]], answer(model, where[1])),
        "test_r2",
        (-9.0, 0.05),
    )


def club(folder: Path, noise: bool) -> Script:
    people = networkx.stochastic_block_model([150, 150], [[0.05, 0.01], [0.01, 0.05]], seed=0)
    for own in people.nodes.values():
        block = own.pop("block")
        own["team"] = ["red", "blue"][int(torch.rand(()) < 0.5) if noise else block]
        own["age"], own["height"] = float(torch.rand(())), torch.rand(3).tolist()
    data = pyg.utils.from_networkx(people, group_node_attrs=["age", "height"])
    y = torch.tensor([own == "red" for own in data.team]).long()
    model = pyg.nn.GCN(4, 8, 2, 2)
    graph = fgl.Graph.from_networkx(people, x=["age", "height"], y="team", classes=["blue", "red"])
    graph = fgl.data.splits.random_split(graph, train=0.3, val=0.1)
    train, test = graph.train_mask, graph.test_mask

    def score(model: Any) -> float:
        out = model(data.x, data.edge_index).argmax(1)
        return float(metrics.accuracy_score(y[test], out[test]))

    return Script(
        fgl.tasks.node_task(graph, [graph], model, TRAIN),
        model,
        lambda model, _: cross_entropy(model(data.x, data.edge_index)[train], y[train]),
        score,
        "test_accuracy",
        (0.38, 0.62),
    )


class Knows(nn.Module):
    """DistMult."""

    def __init__(self, entities: int, relations: int) -> None:
        super().__init__()
        self.ent, self.rel = nn.Embedding(entities, 8), nn.Embedding(relations, 8)

    def forward(self, x: Any, adj: Any, *, edge_label_index: Any, edge_label_type: Any) -> Any:
        head, tail = self.ent(x[:, 0].long())[edge_label_index]
        return (head * self.rel(edge_label_type) * tail).sum(1)


def triples(folder: Path, noise: bool) -> Script:
    every = [(h, r, t) for h, r, t in product(range(20), range(3), range(20)) if h != t]
    true = [(h, r, t) for h, r, t in every if (noise or (h + t + r) % 4 == 0)]
    true = [true[k] for k in torch.randperm(len(true))[:250].tolist()]
    files = {"train": true[:150], "valid": true[150:175], "test": true[175:]}
    for name, own in files.items():
        lines = [f"e{h:02}\tr{r}\te{t:02}" for h, r, t in own]  # sorted as the numbers
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    graph, entities, relations = fgl.data.load_triples(folder)
    assert (len(entities), len(relations)) == (20, 3)
    model = Knows(20, 3)

    def of(model: Any, rows: Tensor) -> Tensor:
        out: Tensor = model.ent.weight[rows[:, 0]] * model.rel.weight[rows[:, 1]]
        return (out * model.ent.weight[rows[:, 2]]).sum(1)

    def loss(model: Any, drawn: Tensor) -> Tensor:  # head, tail, relation
        out = of(model, torch.cat([torch.tensor(files["train"]), drawn[:, [0, 2, 1]]]))
        return binary_cross_entropy_with_logits(out, (torch.arange(len(out)) < 150).float())

    def score(model: Any) -> float:
        inverse = []
        for h, r, t in files["test"]:
            for asked in ([(h, r, e) for e in range(20)], [(e, r, t) for e in range(20)]):
                others = [each for each in asked if each not in true]
                own, rest = of(model, torch.tensor([(h, r, t)])), of(model, torch.tensor(others))
                inverse.append(1 / (1 + int((rest > own).sum())))
        return sum(inverse) / len(inverse)

    how: Any = {"negatives": 4, "ranking": fgl.tasks.ranking()}
    task = fgl.tasks.pair_task([graph], model, TRAIN, **how)
    open_ends = [
        20 - sum((a, r) == (each[end], each[1]) for each in true) + 1
        for h, r, t in files["test"]
        for end, a in ((0, h), (2, t))
    ]
    chance = sum(sum(1 / i for i in range(1, n + 1)) / n for n in open_ends) / len(open_ends)
    return Script(task, model, loss, score, "test_mrr", (chance - 0.06, chance + 0.06))


SCRIPTS = {own.__name__: own for own in (ratings, traffic, atoms, club, triples)}


def run_of(script: Script, rounds: int, drawn: Drawn, steps: int = STEPS) -> fgl.Result:
    """The run, with what each step drew written down."""
    method = script.task.fedavg
    batches: Any = method.train.batches
    if batches is None:
        train = replace(method.train, num_steps=steps)
    else:

        def recorded(graph: fgl.Graph, context: Any) -> Any:
            for own, given in batches(graph, context):
                drawn.append(given["negatives"].values.clone())
                yield own, given

        train = replace(method.train, batches=recorded)
    return fgl.run(replace(method, train=train), script.task, num_rounds=rounds, clients_at_once=1)


@pytest.mark.parametrize("name", SCRIPTS)
def test_one_client_is_a_plain_loop_with_the_same_loss_and_score(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name](tmp_path, noise=False)
    mine, drawn = copy.deepcopy(script.model).train(), []  # type: ignore[var-annotated]
    result = run_of(script, 2, drawn)
    losses = []
    for _ in range(2):
        optimizer = ADAM(mine.parameters())
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = script.loss(mine, drawn[len(losses)] if drawn else None)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    with torch.no_grad():
        score = script.score(mine.eval())
    assert [own.loss for own in result.history] == pytest.approx(
        [sum(losses[:STEPS]) / STEPS, sum(losses[STEPS:]) / STEPS], rel=1e-4
    )
    assert result.history[-1].metrics[script.metric] == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize("name", SCRIPTS)
def test_noise_scores_chance(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name](tmp_path, noise=True)
    result = run_of(script, 30, [], steps=10)
    assert result.history[-1].loss < result.history[0].loss  # it remembers what it read
    low, high = script.chance
    assert low < result.history[-1].metrics[script.metric] < high
