"""One client with everything is plain PyTorch: each task, target and executor against a loop.

The loop has dense matrices, `torch.optim` and `torch.nn.functional` alone. Draws are avoided: the
samplers take every neighbour, the encoder's noise has deviation 0, one pair alone is no edge.

Mutants that this file finds (each was tried): the loop forgets an optimizer that it should keep;
`overlapping_node_task` takes the whole squared norm, not half of it.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):
- a batch uses torch's fused steps for bfloat16: stood in `fused`.
- a batch clips the gradient of a tensor that has none: tried, 1,060 tests.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from federations import graph
from torch import Tensor, nn

import fgl
from fgl.federation import executors

ROUNDS, STEPS, WIDTH, CLASSES = 2, 3, 5, 3
OPTIMIZER = partial(torch.optim.SGD, lr=0.02, momentum=0.9, weight_decay=1e-3)
PLAIN = partial(torch.optim.SGD, lr=0.02)  # without a memory of the first round
TRAIN = fgl.Training(OPTIMIZER, num_steps=STEPS)
Loss = Callable[[Any], Tensor]  # of a model


@dataclass
class Row:
    """A task with one client, and the same as a loop.

    Args:
        task: clients -> task.
        client: the client.
        model: the model before training.
        loss: of a model, in plain PyTorch.
        keeps: whether the optimizer is kept from round to round.
        drawn: whether clients draw what they start from: the loop starts after the first round.
    """

    task: Callable[[list[Any]], fgl.tasks.Task]
    client: Any
    model: nn.Module
    loss: Loss
    keeps: bool = False
    drawn: bool = False


def loop(row: Row, start: dict[str, Tensor], rounds: int) -> dict[str, Tensor]:
    model = copy.deepcopy(row.model).train()
    model.load_state_dict(start)
    optimizer = None
    for _ in range(rounds):
        if optimizer is None or not row.keeps:
            optimizer = (PLAIN if row.drawn else OPTIMIZER)(model.parameters())
        for _ in range(STEPS):
            optimizer.zero_grad()
            row.loss(model).backward()
            optimizer.step()
    return model.state_dict()


@cache
def dense(own: fgl.Graph) -> Tensor:
    """The adjacency matrix, target by source, from the list of edges."""
    matrix = torch.zeros(own.num_nodes, own.num_nodes, dtype=torch.float64)
    for source, target in own.edge_index.t().tolist():
        matrix[target, source] += 1
    return matrix


class Nodes(nn.Module):
    def __init__(self, out: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, 8), nn.Linear(8, out)

    def forward(self, x: Any, adj: Any) -> Any:
        return adj @ self.two((adj @ self.one(x)).tanh()) / 4


class Pooled(Nodes):
    def forward(self, x: Any, adj: Any, pool: Any) -> Any:  # type: ignore[override]
        return pool @ super().forward(x, adj) / 8


class Pairs(Nodes):
    def forward(self, x: Any, adj: Any, *, edge_label_index: Any) -> Any:  # type: ignore[override]
        source, target = super().forward(x, adj)[edge_label_index]
        return source[:, 0] + 2 * target[:, 1]


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


@cache
def whole(size: int = 15) -> fgl.Graph:
    own = graph(size)
    return own.replace(x=own.x[:, :WIDTH].double())  # type: ignore[index]


def answers(target: str, y: Tensor) -> Tensor:
    """Answers of the kind of a target, of which some are not known."""
    if target == "CLASSES":
        return y
    numbers = torch.stack([y.double().sin(), y.double().cos()], 1)
    numbers = numbers if target == "REGRESSION" else (numbers > 0.3).double()
    numbers[::4, 0] = torch.nan
    return numbers


def error(target: str, output: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """What a target minimises, over the known answers of the masked rows."""
    output, y = output[mask], y[mask]
    if target == "CLASSES":
        return F.cross_entropy(output, y)
    known = ~y.isnan()
    each = F.mse_loss if target == "REGRESSION" else F.binary_cross_entropy_with_logits
    return each(output[known], y[known])


def of_nodes(target: str = "CLASSES", make: str = "node") -> Row:
    kind: Any = getattr(fgl.targets, target)
    own = whole().replace(y=answers(target, whole().y))  # type: ignore[arg-type]
    own = own if target == "CLASSES" else own.replace(num_classes=None)
    model = seeded(lambda: Nodes(CLASSES if target == "CLASSES" else 2))
    if make == "overlapping":
        model = seeded(lambda: fgl.nn.GCN(WIDTH, 8, CLASSES, dropout=0.0))
    mask: Any = own.train_mask

    def task(clients: list[fgl.Graph]) -> fgl.tasks.Task:
        if make == "overlapping":
            return fgl.tasks.overlapping_node_task(own, clients, model, TRAIN, l2=0.3)
        if make == "subgraph":
            train = replace(TRAIN, keep_optimizer=True)
            return fgl.tasks.subgraph_node_task(clients, model, train)
        return fgl.tasks.node_task(None, clients, model, TRAIN, target=kind)

    def loss(model: Any) -> Tensor:
        if make == "overlapping":
            matrix = model.convs[0].lin.weight
            fit = F.cross_entropy(model(own.x, own.edge_index)[mask], own.y[mask])  # type: ignore[index]
            return fit + 0.15 * matrix.square().sum()
        return error(target, model(own.x, dense(own)), own.y, mask)  # type: ignore[arg-type]

    return Row(task, own, model, loss, keeps=make == "subgraph")


def of_graphs(target: str) -> Row:
    small, y = fgl.data.small_graphs(9, num_features=WIDTH)
    kind: Any = getattr(fgl.targets, target)
    own = fgl.data.splits.random_split(fgl.Graph.join(small, answers(target, y)))
    own = own.replace(x=torch.as_tensor(own.x).double())
    model = seeded(lambda: Pooled(2))
    batch: Any = own.batch
    pool, mask = F.one_hot(batch).t().double(), own.train_mask

    def task(clients: list[fgl.Graph]) -> fgl.tasks.Task:
        return fgl.tasks.graph_task(clients, clients, model, TRAIN, target=kind)

    def loss(model: Any) -> Tensor:
        return error(target, model(own.x, dense(own), pool), own.y, mask)  # type: ignore[arg-type]

    return Row(task, own, model, loss)


def of_sampled() -> Row:
    """Every neighbour is drawn, and all training nodes are one batch."""
    own = whole()
    model = seeded(lambda: fgl.nn.SAGE(WIDTH, 8, CLASSES, dropout=0.0))
    mask: Any = own.train_mask

    def task(clients: list[fgl.Graph]) -> fgl.tasks.Task:
        how: dict[str, Any] = {"fanouts": (99, 99), "epochs": STEPS, "batch_size": 99}
        return fgl.tasks.sampled_node_task(own, clients, model, OPTIMIZER, **how)

    def loss(model: Any) -> Tensor:
        return F.cross_entropy(model(own.x, own.edge_index)[mask], own.y[mask])  # type: ignore[index]

    return Row(task, own, model, loss)


def of_egos() -> Row:
    """A node has one neighbour, which every draw takes; a fifth of the nodes train, all of them."""
    other = torch.arange(20) ^ 1
    train = torch.arange(20) % 5 == 0
    own = whole(20).replace(
        edge_index=torch.stack([other, torch.arange(20)]),
        train_mask=train,
        val_mask=torch.arange(20) % 5 == 1,
        test_mask=torch.arange(20) % 5 == 2,
    )
    model = seeded(lambda: fgl.nn.EgoSAGE(WIDTH, 8, CLASSES, fanouts=(2, 2), dropout=0.0))

    def task(clients: list[fgl.Graph]) -> fgl.tasks.Task:
        how: dict[str, Any] = {"epochs": STEPS, "batch_size": 4}
        return fgl.tasks.ego_node_task(clients, own, model, PLAIN, **how)

    def loss(model: Any) -> Tensor:
        return F.cross_entropy(model(own.x, own.edge_index)[train], own.y[train])  # type: ignore[index]

    return Row(task, own, model, loss, keeps=True, drawn=True)


def encoder(**how: Any) -> nn.Module:
    """An encoder whose noise has deviation exp(-40)."""
    model: Any = seeded(lambda: fgl.nn.VGAE(WIDTH, 8, 4, **how))
    with torch.no_grad():
        model.conv_logstd.bias.fill_(-40.0)
    return model  # type: ignore[no-any-return]


def divergence(mu: Tensor, log_sigma: Tensor) -> Tensor:
    """Of normal distributions from the standard one, by torch: the mean over the nodes."""
    normal = torch.distributions.Normal
    own, standard = normal(mu, log_sigma.exp()), normal(torch.zeros_like(mu), 1.0)
    return torch.distributions.kl_divergence(own, standard).sum(1).mean()


def of_own_nodes() -> Row:
    own, model = whole(), encoder(num_classes=CLASSES)
    mask: Any = own.train_mask

    def loss(model: Any) -> Tensor:
        out, mu, log_sigma = model(own.x, own.edge_index, noise=0 * ONES, return_embedding=True)
        kl = divergence(mu, log_sigma) / own.num_nodes
        return F.cross_entropy(out[mask], own.y[mask]) + 1e-3 * kl  # type: ignore[index]

    ONES = torch.ones(own.num_nodes, 4, dtype=torch.float64)
    return Row(
        lambda clients: fgl.tasks.own_node_task(clients, model, TRAIN, kl=1e-3),  # type: ignore[arg-type]
        own,
        model,
        loss,
    )


def of_links() -> Row:
    split = fgl.data.splits.edge_split(whole(20), val=0.2, test=0.2)
    own, model = split.graph, encoder()
    exists = (dense(own) > 0).double()

    def task(clients: list[fgl.Graph]) -> fgl.tasks.Task:
        splits = [replace(split, graph=each) for each in clients]
        return fgl.tasks.link_task(splits, model, TRAIN, kl=1e-3, recon="dense")  # type: ignore[arg-type]

    def loss(model: Any) -> Tensor:
        zero = torch.zeros(own.num_nodes, 4, dtype=torch.float64)
        z, mu, log_sigma = model(own.x, own.edge_index, noise=zero, return_embedding=True)
        every = F.binary_cross_entropy_with_logits(z @ z.t(), exists, reduction="sum")
        return every / own.num_nodes + 1e-3 * divergence(mu, log_sigma) / own.num_nodes

    return Row(task, own, model, loss)


def of_pairs(negatives: bool) -> Row:
    """With negatives: of each node all others but the next are targets, so the next is drawn."""
    size = 6
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size)).t()
    step = (pairs[1] - pairs[0]) % size
    edges, absent = pairs[:, step > 1], pairs[:, step == 1]
    mask = torch.ones(edges.shape[1], dtype=torch.bool)
    own = whole(20).replace(
        x=whole(20).x[:size],  # type: ignore[index]
        y=torch.ones(edges.shape[1], dtype=torch.float64),
        edge_index=edges,
        edge_label_index=edges,
        num_classes=None,
        train_mask=mask,
        val_mask=None,
        test_mask=None,
    )
    y: Any = own.y if negatives else (edges.sum(0) % 2).double()
    own, model = own.replace(y=y), seeded(lambda: Pairs(2))
    asked = torch.cat([edges, absent.repeat(1, size - 2)], 1) if negatives else edges
    answer = torch.cat([y, torch.zeros(asked.shape[1] - len(y), dtype=torch.float64)])

    def loss(model: Any) -> Tensor:
        out = model(own.x, dense(own), edge_label_index=asked)
        return F.binary_cross_entropy_with_logits(out, answer)

    def task(clients: list[fgl.Graph]) -> fgl.tasks.Task:
        return fgl.tasks.pair_task(clients, model, TRAIN, negatives=negatives)

    return Row(task, own, model, loss)


def of_generators() -> Row:
    """No node is hidden, so none is missing."""
    own = whole()
    make = partial(fgl.nn.NeighbourGenerator, WIDTH, 8, CLASSES, latent=4, widths=(5, 6))
    model: Any = seeded(partial(make, dropout=0.0))
    with torch.no_grad():
        model.count.weight.mul_(0.1)
        model.count.bias.fill_(0.3)  # below a half, so that no neighbour is generated
    mask: Any = own.train_mask

    def task(clients: list[fgl.Graph]) -> fgl.tasks.Task:
        how: dict[str, Any] = {"share": 0.0, "weights": (2.0, 1.0, 0.5)}
        return fgl.tasks.generator_task(clients, model, TRAIN, **how)  # type: ignore[arg-type]

    def loss(model: Any) -> Tensor:
        count, _, logits = model(own.x, own.edge_index)
        apart = F.smooth_l1_loss(count[mask], torch.zeros_like(count[mask]))
        return 2 * apart + 0.5 * F.cross_entropy(logits[mask], own.y[mask])  # type: ignore[index]

    return Row(task, own, model, loss)


ROWS: dict[str, Callable[[], Row]] = {
    "node_task": of_nodes, "node_task REGRESSION": partial(of_nodes, "REGRESSION"),
    "node_task ANSWERS": partial(of_nodes, "ANSWERS"), "graph_task": partial(of_graphs, "CLASSES"),
    "graph_task REGRESSION": partial(of_graphs, "REGRESSION"),
    "graph_task ANSWERS": partial(of_graphs, "ANSWERS"),
    "overlapping_node_task": partial(of_nodes, make="overlapping"),
    "subgraph_node_task": partial(of_nodes, make="subgraph"), "sampled_node_task": of_sampled,
    "ego_node_task": of_egos, "own_node_task": of_own_nodes, "link_task": of_links,
    "pair_task": partial(of_pairs, negatives=False),
    "pair_task with negatives": partial(of_pairs, negatives=True), "generator_task": of_generators,
}  # fmt: skip


def in_a_loop(row: Row, rounds: int = ROUNDS) -> fgl.Result:
    task = row.task([row.client])
    return fgl.run(task.fedavg, task.clients, num_rounds=rounds, clients_at_once=1)


def in_a_batch(row: Row, rounds: int = ROUNDS) -> fgl.Result:
    """Two clients that both have everything, since one is no batch."""
    task = row.task([row.client, row.client.replace()])
    return fgl.run(task.fedavg, task.clients, num_rounds=rounds, clients_at_once="all")


def over_flower(row: Row, rounds: int = ROUNDS) -> fgl.Result:
    pytest.importorskip("flwr")
    from flower_grid import Grid, apps
    from test_flower import flower

    task = row.task([row.client])
    grid = Grid(apps(task.fedavg, task.clients))
    return fgl.run(task.fedavg, flower(grid), num_rounds=rounds)


EXECUTORS = {"loop": in_a_loop, "batch": in_a_batch, "remote": over_flower}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_one_client_with_everything_is_a_plain_loop(executor: str) -> None:
    for name, make in ROWS.items():
        row = make()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Expected (a client|all clients) to have")
            result = EXECUTORS[executor](row)
            start = row.model.state_dict()
            if row.drawn:
                start = dict(EXECUTORS[executor](row, 1).outbox[0]["model"])  # type: ignore[call-overload]
        assert not result.history[-1].one_by_one, name
        trained, moved = loop(row, start, ROUNDS - row.drawn), 0.0
        for key, value in result.outbox[0]["model"].items():
            torch.testing.assert_close(value, trained[key], atol=1e-5, rtol=0, msg=f"{name} {key}")
            moved = max(moved, float((value - start[key]).abs().max()))
        assert moved > 1e-3, name


def few_bits(dtype: torch.dtype, kind: Any, **how: Any) -> tuple[Row, Any]:
    """Classes of nodes without edges; the tensors have room for whole vectors of a processor."""
    own, model = whole(), seeded(partial(nn.Linear, WIDTH, CLASSES)).to(dtype)
    own = own.replace(x=own.x.to(dtype), edge_index=own.edge_index[:, :0])  # type: ignore[union-attr]
    optimizer = partial(kind, lr=0.05, **how)

    class Linear(nn.Linear):
        def forward(self, x: Any, edge_index: Any = None) -> Any:  # type: ignore[override]
            return super().forward(x)

    model.__class__ = Linear
    train = fgl.Training(optimizer, num_steps=STEPS)

    def loss(model: Any) -> Tensor:
        return F.cross_entropy(model(own.x)[own.train_mask], own.y[own.train_mask])  # type: ignore[index]

    return Row(
        lambda all: fgl.tasks.node_task(None, all, model, train), own, model, loss
    ), optimizer


def test_a_model_of_half_precision_is_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the rounding of 8 and 11 bits; each entry moves by much more."""
    half, full = (torch.float16, torch.bfloat16), (torch.optim.Adam, torch.optim.AdamW)
    cases: list[Any] = [(dtype, torch.optim.SGD, {"momentum": 0.9}) for dtype in half]
    cases += [(torch.bfloat16, kind, {}) for kind in (torch.optim.SGD, torch.optim.Adagrad, *full)]
    for dtype, kind, how in cases:
        row, optimizer = few_bits(dtype, kind, **how)
        monkeypatch.setitem(globals(), "OPTIMIZER", optimizer)
        trained, start = loop(row, row.model.state_dict(), ROUNDS), row.model.state_dict()
        for run in (in_a_loop, in_a_batch):
            new: Any = run(row).outbox[0]["model"]
            for key, value in new.items():
                moved = (trained[key] - start[key]).double()
                error = (value - trained[key]).double()
                assert error.norm() < 0.2 * moved.norm(), (dtype, kind, run, key)


class Shared(nn.Module):
    """A layer that is called under two names, one that is frozen, and one that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.two.weight = self.one.weight
        self.still, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.unread = nn.Parameter(torch.ones(3))
        self.still.requires_grad_(False)

    def forward(self, x: Any, edge_index: Any = None) -> Any:
        return self.out(self.still(self.two(self.one(x).tanh()).tanh()).tanh())


class Normed(nn.Module):
    """Running means that a client moves in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(WIDTH, momentum=0.3), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any, edge_index: Any = None) -> Any:
        return self.out(self.norm(x))


def in_groups(tensors: list[Tensor]) -> torch.optim.Optimizer:
    """Weights decay, biases do not."""
    groups = [[t for t in tensors if t.dim() == dim] for dim in (2, 1)]
    decays = zip(groups, (0.3, 0.0), strict=True)
    return torch.optim.AdamW([{"params": p, "weight_decay": d} for p, d in decays], lr=0.05)


SETTINGS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "groups": (Shared, in_groups, {}),
    "groups, kept": (Shared, in_groups, {"keep_optimizer": True}),
    "clipped": (Shared, partial(torch.optim.SGD, lr=0.5), {"max_grad_norm": 0.05}),
    "hardly clipped": (Shared, partial(torch.optim.SGD, lr=0.5), {"max_grad_norm": 9.0}),
    "clipped, kept": (
        Shared, partial(torch.optim.Adam, lr=0.05, amsgrad=True, eps=1e-2),
        {"max_grad_norm": 0.05, "keep_optimizer": True},
    ),
    "nesterov": (Shared, partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True), {}),
    "maximize": (Shared, partial(torch.optim.Adagrad, lr=0.1, lr_decay=0.5, maximize=True), {}),
    "rmsprop": (
        Shared, partial(torch.optim.RMSprop, lr=0.01, centered=True, momentum=0.5),
        {"keep_optimizer": True},
    ),
    "nadam": (Shared, partial(torch.optim.NAdam, lr=0.05), {"keep_optimizer": True}),
    "rprop": (Shared, partial(torch.optim.Rprop, lr=0.05), {}),
    "running means": (Normed, partial(torch.optim.SGD, lr=0.1), {}),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Training one client after the other")
def test_settings_of_training_are_those_of_a_plain_loop() -> None:
    own = whole()
    own = own.replace(edge_index=own.edge_index[:, :0])  # type: ignore[union-attr]
    mask: Any = own.train_mask
    for name, (kind, optimizer, how) in SETTINGS.items():
        net = seeded(kind)
        task = fgl.tasks.node_task(
            None, [own, own.replace()], net, fgl.Training(optimizer, num_steps=STEPS, **how)
        )
        model: Any = copy.deepcopy(net).train()
        stepper = None
        for _ in range(ROUNDS):
            if stepper is None or "keep_optimizer" not in how:
                stepper = optimizer([p for p in model.parameters() if p.requires_grad])
            for _ in range(STEPS):
                stepper.zero_grad()
                F.cross_entropy(model(own.x)[mask], own.y[mask]).backward()  # type: ignore[index]
                for each in (model.unread,) if kind is Shared else ():
                    each.grad = torch.zeros_like(each)
                if "max_grad_norm" in how:
                    nn.utils.clip_grad_norm_(model.parameters(), how["max_grad_norm"])
                stepper.step()
        for at_once in (1, "auto" if kind is Normed else "all"):
            result = fgl.run(task.fedavg, task, num_rounds=ROUNDS, clients_at_once=at_once)
            new, moved = result.outbox[0]["model"], 0.0
            for key, value in model.state_dict().items():
                got = new[key]  # type: ignore[index]
                torch.testing.assert_close(got, value, atol=1e-7, rtol=1e-7, msg=f"{name} {key}")
                moved = max(moved, float((value - net.state_dict()[key]).abs().max()))
            assert moved > 1e-3, name


def test_every_task_target_and_executor_has_a_row() -> None:
    tasks = {name for name in fgl.tasks.__all__ if name.endswith("_task")}
    assert {name.split()[0] for name in ROWS} == tasks
    kinds = vars(fgl.targets).items()
    targets = {name for name, kind in kinds if isinstance(kind, fgl.targets.Target)}
    named = {name.split()[1] for name in ROWS if name.split()[-1].isupper()}
    assert named | {"CLASSES", "FORECAST"} == targets  # test_windows has the loop of FORECAST
    files = {path.stem for path in Path(executors.__path__[0]).iterdir()}
    assert files - {"__init__", "__pycache__", "here"} == set(EXECUTORS)
