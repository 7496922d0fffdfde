"""Wrong kinds of things, given to everything public: a sentence names what was expected."""

import copy
import importlib
import inspect
import pickle
import re
import warnings
from collections.abc import Callable
from functools import partial
from inspect import formatannotation
from typing import Any

import numpy as np
import pytest
import torch
from federations import CLASSES, FEATURES, fedavg, graph, graphs, model, script
from test_public_names import exported
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

import fgl

CLIENTS = graphs()
TASK = fgl.tasks.node_task(graph(), CLIENTS, model(), fgl.Training(num_steps=1))
METHOD, TRAIN = TASK.fedavg, fgl.Training(num_steps=1)
WRONG: dict[str, Any] = {
    "task": TASK, "setting": fgl.tasks.Nodes(clients=3), "method": METHOD, "model": METHOD.model,
    "class": fgl.nn.GCN, "name": "fedprox", "graph": graph(), "graphs": CLIENTS,
    "builder": fgl.methods.fedprox, "tensor": torch.ones(2), "dict": {}, "None": None,
}  # fmt: skip
# Annotations to what belongs there; what is not listed is not asked.
NOTHING: frozenset[str] = frozenset()
BELONGS: dict[str, Any] = {
    **dict.fromkeys(("Sequence[EdgeSplit]", "VGAE", "EgoSAGE", "NeighbourGenerator"), NOTHING),
    **dict.fromkeys(("NodeGenerator", "Training", "Target", "float", "int", "bool"), NOTHING),
    "float | None": {"None"}, "int | None": {"None"}, "Method": {"method"}, "Task": {"task"},
    "Graph": {"graph"}, "Graph | None": {"graph", "None"}, "Sequence[Graph]": {"graphs"},
    "nn.Module": {"model"}, "Tensor": {"tensor"}, "str": {"name"},
}  # fmt: skip
RIGHT: dict[str, Any] = {
    "int | Sequence[int]": 0, "Method": METHOD, "Task": TASK, "Graph": graph(),
    "Graph | None": graph(), "Sequence[Graph]": CLIENTS,
    "Sequence[EdgeSplit]": [fgl.data.splits.edge_split(graph(40))],
    "Graph | Sequence[Graph]": graph(), "EdgeSplit": fgl.data.splits.edge_split(graph(40)),
    "nn.Module": METHOD.model, "VGAE": fgl.nn.VGAE(FEATURES, 8, 4),
    "EgoSAGE": fgl.nn.EgoSAGE(FEATURES, 8, CLASSES),
    "NeighbourGenerator": fgl.nn.NeighbourGenerator(FEATURES, 8, CLASSES),
    "NodeGenerator": fgl.methods.node_generator(graph()), "Training": TRAIN,
    "Tensor": torch.zeros(4), "float": 0.5, "int": 2, "str": "a",
    "Sequence[Tensor]": [torch.arange(4)], "Sequence[str]": ["a"], "Mapping[int, bytes]": {},
    "Inbox": fgl.federation.Inbox({}, 3), "OptimizerFactory": torch.optim.SGD,
    "Damage": fgl.data.Damage(), "Sequence[Round]": [], "str | os.PathLike[str]": "a",
}  # fmt: skip
COUNTS, SHARES = ("Natural", "Count", "Several"), ("Share", "PositiveShare", "Chance")
for alias in (*COUNTS, *SHARES, "Weight", "Positive"):
    kind = "int" if alias in COUNTS else "float"
    for spelled in (alias, str(getattr(fgl.checks, alias))):  # postponed, or not
        BELONGS[spelled], RIGHT[spelled] = BELONGS[kind], RIGHT[kind]
    BELONGS[f"{alias} | None"] = {"None"}


def short(annotation: Any) -> str:
    """An annotation without the names of modules, whether it is postponed or not."""
    text = annotation if isinstance(annotation, str) else formatannotation(annotation)
    return re.sub(r"\b[\w.]+\.(?=\w)", "", text)


BELONGS, RIGHT = ({short(key): each for key, each in of.items()} for of in (BELONGS, RIGHT))
PUBLIC = [
    getattr(room, name)
    for room in (fgl.methods, fgl.transforms, fgl.tasks, fgl.data)
    for name in room.__all__
    if name not in ("EdgeSplit", "HiddenNodes")  # what functions return
] + [fgl.fedavg, fgl.evaluate_on, fgl.run]


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = inspect.signature(function).parameters
    return {name: each for name, each in own.items() if each.kind not in kinds}


def right(annotation: str) -> Any:
    empty = annotation.startswith(("Sequence", "Iterable", "Collection"))
    empty_dict = annotation.startswith("Mapping")
    return RIGHT.get(annotation, {} if empty_dict else [] if empty else print)


def call_with(function: Callable[..., Any], name: str, value: Any) -> Any:
    """A call that is right but for one argument."""
    own = parameters(function)
    needed = {key: each for key, each in own.items() if each.default is each.empty}
    given = {key: right(short(each.annotation)) for key, each in needed.items()}
    given |= {"clients": CLIENTS} if function is fgl.run else {}
    return function(**{**given, name: value})


def test_whatever_is_given_in_the_place_of_something_else_is_named() -> None:
    """For each argument of everything public, each wrong thing."""
    asked = 0
    for function in dict.fromkeys(filter(callable, PUBLIC)):
        for name, parameter in parameters(function).items():
            belongs = BELONGS.get(short(parameter.annotation))
            for kind, value in WRONG.items() if belongs is not None else ():
                if kind in belongs:
                    continue
                where = f"{getattr(function, '__name__', function)}({name}={kind})"
                try:
                    call_with(function, name, value)
                except (TypeError, ValueError) as error:
                    text = str(error)
                    assert text.startswith("Expected ") and name in text, f"{where}: {text}"
                    assert ", but got " in text, f"{where}: {text}"
                    asked += 1
                except Exception as error:
                    pytest.fail(f"{where}: {type(error).__name__}: {error}")
                else:
                    pytest.fail(f"{where} was taken")
    assert asked > 5000


def public() -> dict[str, Callable[..., Any]]:
    """Every public function, class and method, by its name."""
    found: dict[str, Callable[..., Any]] = {}
    for path in exported():
        room, name = path.rsplit(".", 1)
        own = getattr(importlib.import_module(room), name)
        if inspect.isfunction(own):
            found[path] = own
        protocol = getattr(own, "_is_protocol", False)
        if inspect.isclass(own) and not issubclass(own, BaseException) and not protocol:
            found[path] = own.__init__  # type: ignore[misc]
            functions = {k: getattr(own, k) for k in vars(own) if k[0] != "_" and k != "forward"}
            methods = {
                k: each
                for k, each in functions.items()
                if (inspect.isfunction(each) or inspect.ismethod(each))
            }
            found |= {f"{path}.{k}": each for k, each in methods.items()}
    return found


def test_an_unknown_argument_of_everything_public_is_named() -> None:
    asked = 0
    for path, function in public().items():
        own = inspect.signature(function).parameters.values()
        inside = str(getattr(function, "__module__", "")).startswith("fgl")
        if not inside or any(each.kind is each.VAR_KEYWORD for each in own):
            continue
        with pytest.raises(TypeError, match="Expected an argument of .*, but got unheard_of=3"):
            function(unheard_of=3)
            pytest.fail(path)
        asked += 1
    assert asked > 450, asked


def usage(a: int, b: int, *more: int, c: int = 1, d: int = 2, **how: int) -> None: ...


# A wrong call, and what its error says.
NODES = fgl.tasks.Nodes
ADAM: Any = torch.optim.Adam
SUM = fgl.transforms.secure_sum(METHOD, threshold=3)
MEDIAN = fgl.aggregate.robust.median
ROBUST = fgl.transforms.robust(METHOD, MEDIAN)
MEANT: dict[str, tuple[Callable[[], Any], str]] = {
    "run": (lambda: fgl.run(METHOD, CLIENTS, rounds=2), "rounds=2: did you mean num_rounds=2?"),
    "model": (lambda: fgl.nn.GCN(8, 8, 3, layers=3), "did you mean num_layers=3?"),
    "rate": (lambda: fgl.Training(lr=0.1), "did you mean optimizer=partial(torch.optim.SGD"),
    "rate and name": (lambda: fgl.Training("adam", lr=0.1), "=partial(torch.optim.Adam, lr=0.1)?"),
    "steps": (lambda: fgl.Training(local_epochs=3), "did you mean num_steps=3?"),
    "epochs": (lambda: fgl.Training(batches=min, local_epochs=3), "did you mean epochs=3?"),
    "inbox": (lambda: METHOD.aggregate({}, {}), "but got dict: inbox.with_messages(messages)"),
    "rate of a setting": (lambda: NODES(lr=0.1), "did you mean local=fgl.tasks.Local(lr=0.1)?"),
    "field": (lambda: graph().replace(label=1), "label=1: did you mean y=1?"),
    "forward": (lambda: METHOD.model(graph().x, graph().adj, return_embeding=True),
        "an argument of GCN.forward, but got return_embeding=True: did you mean return_embedding"),
    "graph of a model": (lambda: METHOD.model(graph()), "Expected edges to be given, but got none"),
    "mu": (lambda: fgl.methods.fedprox(METHOD, proximal_mu=1.0), "did you mean mu=1.0?"),
    "mask": (lambda: fgl.metrics.accuracy(None, None, maks=1), "did you mean mask=1?"),
    "method": (lambda: graph().subgraph(nodse=1), "did you mean nodes=1?"),
    "seeds": (lambda: compared(num_rounds=1, seed=3), "seed=3: did you mean seeds=3?"),
    "passed on": (lambda: compared(num_rounds=1, participate=0.5), "did you mean participation="),
    "in place of a needed one": (lambda: compared(rounds=1),
        "num_rounds to be given, but got rounds=1: compare("),
    "two values": (lambda: fgl.fedavg(model(), model=model()), "values for argument 'model'"),
    "robust mean of a sum": (lambda: fgl.transforms.robust(SUM, MEDIAN), "choose one"),
    "sum of a robust mean": (lambda: fgl.transforms.secure_sum(ROBUST, threshold=3), "choose one"),
    "clipped sum": (lambda: fgl.transforms.clipped(SUM, length=1.0), "write secure_sum(clipped(m"),
    "shared": (lambda: fgl.methods.fedper(METHOD), "; shared: names of modules, such as"),
    "settings": (fgl.kinds.explained(usage),
        "a, b to be given, but got none: usage(a, b, c=..., d=..., ...)"),
    "client": (lambda: RESULT.model_of("a"), "client to be an integer >= 0, but got 'a'"),
    "device": (lambda: graph().to("gpu"), "device to be one that torch has here, but got 'gpu'"),
    "dataset": (lambda: NODES(dataset="Cora").load(), "did you mean 'cora'?"),
    "choice": (lambda: NODES(model="GCNN"), "did you mean 'gcn'?"),
    "metric": (lambda: SCORED.best("val_acuracy"), "did you mean 'val_accuracy'?"),
    "nodes": (lambda: graph().subgraph("abc"), "nodes to be an int64 tensor, but got str"),
    "graphs": (lambda: fgl.Graph.join(3), "graphs to be a sequence, each a fgl.Graph"),
    "joined": (lambda: fgl.Graph.join(*[graph()] * 3), "but got 3: Graph.join(graphs, y, ...)"),
    "seed": (lambda: NODES().load(seed="a"), "seed to be an integer, but got 'a'"),
    "its class": (lambda: fgl.fedavg(model(), train=ADAM), "Adam: fgl.Training(partial(torch."),
    "one of tensors": (lambda: training(ADAM([torch.ones(1)])), "got Adam: partial(torch.optim.Ad"),
    "a method's": (lambda: fgl.methods.fedprox(METHOD, mu=1, lr=1), "lr=1: fgl.Training(...) or"),
    "a VGAE": (lambda: own_nodes(type("VGAE", (nn.Module,), {})()), "fgl.nn.VGAE, but got tests's"),
    "setting": (lambda: fgl.run(METHOD, NODES(), num_rounds=1), "a Nodes, whose load(seed=0)"),
    "start": (lambda: ran(start={}), "start to be a Result or None, but got dict"),
    "optimizer": (lambda: fgl.Training("adam"), "partial(torch.optim.Adam, lr=0.01)"),
}  # fmt: skip
RESULT = fgl.run(METHOD, CLIENTS, num_rounds=0)
SCORED = fgl.Result({}, {}, {}, [fgl.federation.Round(0, [0], metrics={"val_accuracy": 0.5})])


def compared(**how: Any) -> Any:
    return fgl.compare({}, NODES(), **how)


def ran(method: fgl.Method | None = None, **how: Any) -> Any:
    return fgl.run(METHOD if method is None else method, CLIENTS, num_rounds=1, **how)


def training(optimizer: Any = None, **how: Any) -> fgl.Training:
    return fgl.Training(torch.optim.SGD if optimizer is None else optimizer, **how)


def predicted(params: Any, net: nn.Module | None = None, **how: Any) -> Any:
    return fgl.predict(model() if net is None else net, params, graph(), **how)


VGAE = fgl.nn.VGAE(FEATURES, 8, 4, num_classes=CLASSES)
# A function that takes or returns something else, and words of the error.
FUNCTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "callback": (lambda: ran(callbacks=[lambda: None]), "callbacks[0] to be a function of (record"),
    "evaluate": (lambda: ran(evaluate=lambda: {}), "evaluate to be a function of (outbox"),
    "watch": (lambda: ran(watch=lambda: {}), "watch to be a function of (server_state)"),
    "score": (lambda: ran(score=lambda params: {}), "score to be a function of (params, graph)"),
    "dropouts": (lambda: ran(dropouts=lambda: True), "dropouts to be a function of (round"),
    "their value": (lambda: ran(dropouts=lambda *of: "no"), "the value of dropouts to be a bool"),
    "batches": (lambda: training(batches=32), "but got 32: a function of (graph, context)"),
    "adjust": (lambda: training(adjust=lambda grads: grads), "adjust to be a function of (grads"),
    "optimiser": (
        lambda: ran(fgl.fedavg(model(), train=training(lambda params: None))),
        "optimizer to return a torch.optim optimiser",
    ),
    "closure": (
        lambda: ran(fgl.fedavg(model(), train=training(torch.optim.LBFGS))),
        "optimizer to step in place and without a closure, as torch.optim.SGD and Adam do, but got",
    ),
    "taped": (
        lambda: ran(
            fgl.fedavg(model(), train=training(partial(torch.optim.SGD, differentiable=True)))
        ),
        "but got SGD with differentiable=True",
    ),
    "features of float64": (
        lambda: fgl.predict(model(), model().state_dict(), graph().replace(x=graph().x.double())),  # type: ignore[union-attr]
        "graph.x to be torch.float32 as the parameters, but got torch.float64: graph.replace(x=",
    ),
    "features of bfloat16": (
        lambda: fgl.predict(
            model().bfloat16(),
            model().bfloat16().state_dict(),
            graph().replace(x=graph().x.bfloat16()),  # type: ignore[union-attr]
        ),
        "torch computes GCN in on cpu, but got torch.bfloat16: graph.replace(x=graph.x.float())",
    ),
    "a run's cost": (
        lambda: fgl.transforms.privacy_spent(RESULT),  # type: ignore[arg-type]
        "state to be a dict, but got Result: result.server_state",
    ),
    "torch's loss": (
        lambda: fgl.fedavg(model(), loss=nn.functional.cross_entropy),
        "loss to be a function of (params, graph, context), but got torch's cross_entropy",
    ),
    "a module's": (lambda: fgl.fedavg(model(), loss=nn.CrossEntropyLoss()), "torch's CrossEntropy"),
    "torch's median": (
        lambda: fgl.transforms.robust(METHOD, rule=torch.median),
        "rule to be a function of (updates), but got torch's median",
    ),
    "an encoder's three outputs": (
        lambda: ran(script("examples/fgssl.py").fgssl(own_nodes(VGAE))),
        "VGAE's forward to return (logits, embedding), but got 3 values",
    ),
    "layer": (lambda: fgl.layer(3), "builder to be a function"),
    "no parameters": (lambda: predicted({}), "params to have all names of GCN"),
    "another model": (lambda: predicted({"a.weight": torch.ones(1)}), "but got ['a.weight']"),
    "a list": (lambda: predicted([*model().parameters()]), "params to be a dict, but got list"),
    "forward": (
        lambda: predicted(METHOD.initial(), embedding=True),
        "GCN's forward to take ['embedding'], but got ['x'",
    ),
    "half of the parameters": (
        lambda: predicted(dict(list(METHOD.initial().items())[1:])),
        "Expected params to have all names of GCN",
    ),
    "product": (lambda: fgl.SparseMatrix.from_dense(torch.eye(2)) @ "a", "but got 'a'"),
    "patience": (lambda: fgl.experiment.early_stop("a"), "patience to be an integer"),
    "file": (lambda: fgl.experiment.CSV(3), "path to be a string or a Path, but got 3"),
}


def own_nodes(net: nn.Module) -> fgl.Method:
    return fgl.tasks.own_node_task(CLIENTS, net, TRAIN).fedavg


def test_a_function_of_something_else_is_named_with_its_arguments() -> None:
    for name, (call, words) in FUNCTIONS.items():
        with pytest.raises((TypeError, ValueError), match="Expected ") as caught:
            call()
            pytest.fail(name)
        assert words in str(caught.value), f"{name}: {caught.value}"
    for name, here in (("FedProx", "fedprox"), ("fedproxx", "fedprox"), ("FedBN", "fedper")):
        with pytest.raises(AttributeError, match=f"fgl.methods.{here}"):
            getattr(fgl.methods, name)


def test_scaffold_around_scaffold_is_refused() -> None:
    """Both would write their control under one name, and the second run be wrong in silence."""
    with pytest.raises(ValueError, match="both would keep their control"):
        fgl.methods.scaffold(fgl.methods.scaffold(METHOD))


def test_numbers_of_numpy_are_numbers() -> None:
    task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=np.int64(0))
    same = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
    assert all(
        torch.equal(one.edge_index, two.edge_index)
        for one, two in zip(task.clients, same.clients, strict=True)
    )
    graph_ = graph(40)
    one, two = (fgl.data.splits.random_split(graph_, seed=k, train=s)
                for k, s in ((3, 0.5), (np.int64(3), np.float32(0.5))))  # fmt: skip
    assert torch.equal(one.train_mask, two.train_mask)  # type: ignore[arg-type]


def test_a_wrong_call_names_the_right_one() -> None:
    for name, (call, words) in MEANT.items():
        with pytest.raises((TypeError, ValueError), match="^Expected ") as caught:
            call()
            pytest.fail(name)
        assert words in str(caught.value), f"{name}: {caught.value}"


def test_a_warning_points_at_the_line_of_the_caller() -> None:
    """Through functions whose arguments are checked, dataclasses, a run and a task."""
    gaps = {"y": torch.tensor([0, 0, 0, 1000, 1000, 1000]), "num_classes": None}
    pairs = torch.tensor([[0, 1, 2], [1, 2, 0]])
    calls: dict[str, Callable[[], Any]] = {
        "split": lambda: fgl.data.splits.random_split(graph(3), train=0.1),
        "class_capped_split": lambda: fgl.data.splits.split(graph(3), "class_capped"),
        "pair_split": lambda: fgl.data.splits.pair_split(fgl.Graph(torch.eye(3), pairs)),
        "partition": lambda: fgl.data.partitions.partition_graph(
            graph(), [*torch.arange(20).view(10, 2)]
        ),
        "graph": lambda: graph(6).replace(**gaps),
        "noise": lambda: fgl.privacy.gaussian(
            {"a": torch.zeros(1)}, sigma=1.0, unprotected=torch.Generator()
        ),
        "run": lambda: fgl.run(fgl.fedavg(pyg.GCN(FEATURES, 8, 2, CLASSES, norm="batch_norm")),
                               CLIENTS, num_rounds=1),
    }  # fmt: skip
    for name, call in calls.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        files = {one.filename for one in caught}
        assert files == {__file__}, f"{name}: {[(one.filename, one.message) for one in caught]}"


# What was given, and the call that its error names.
SETTING, LOCAL = WRONG["setting"], fgl.methods.local
WAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "task": (lambda: fgl.methods.fedprox(TASK, mu=0.1), "fedprox(task.fedavg, mu=...)"),
    "setting": (lambda: fgl.methods.scaffold(SETTING), "scaffold(setting.load(seed=0).fedavg)"),
    "model": (lambda: LOCAL(model()), "local(fgl.fedavg(model))"),
    "class": (lambda: LOCAL(fgl.nn.GCN), "local(fgl.fedavg(GCN(...)))"),
    "name": (lambda: LOCAL("moon"), "local(fgl.methods.moon(task.fedavg))"),
    "FedAvg's name": (lambda: LOCAL("fedavg"), "local(task.fedavg)"),
    "no name": (lambda: LOCAL("fedporx"), "local(task.fedavg)"),
    "with settings": (lambda: LOCAL("fedprox"), "local(fgl.methods.fedprox(task.fedavg, mu=...))"),
    "builder with settings": (lambda: LOCAL(fgl.methods.fedprox),
        "local(fedprox(task.fedavg, mu=...))"),
    "builder": (lambda: LOCAL(fgl.methods.ring), "local(ring(task.fedavg))"),
    "None": (lambda: LOCAL(None), "local(task.fedavg)"),
    "graph": (lambda: of_nodes(graph()), "[graph]"),
    "clients": (lambda: of_nodes(TASK), "task.clients"),
    "parts": (lambda: of_nodes([torch.arange(3)]), "partitions.partition_graph(graph, parts)"),
    "a class of model": (lambda: of_nodes(CLIENTS, fgl.nn.GCN), "GCN(...)"),
    "a task": (lambda: fgl.evaluate_on(TASK), "evaluate_on(task.fedavg, task.whole, task.clients)"),
    "an encoder": (lambda: of_links(RIGHT["Sequence[EdgeSplit]"], model()), "fgl.tasks.pair_task"),
    "no split": (lambda: of_links(CLIENTS, VGAE), "fgl.data.splits.edge_split(graph)"),
    "setting as task": (lambda: fgl.tasks.centralized(SETTING), "setting.load(seed=0)"),
    "fedavg as task": (lambda: fgl.compare({"a": lambda t: t.fedavg}, lambda seed: TASK,
        num_rounds=1), "lambda task:"),
}  # fmt: skip


def of_nodes(clients: Any, net: Any = None) -> Any:
    return fgl.tasks.node_task(None, clients, model() if net is None else net, TRAIN)


def of_links(clients: Any, net: Any) -> Any:
    return fgl.tasks.link_task(clients, net, TRAIN)


def test_an_error_names_the_call_that_works() -> None:
    for kind, (call, way) in WAYS.items():
        with pytest.raises(TypeError, match="Expected .*, but got .*: .*" + re.escape(way)):
            call()
            pytest.fail(kind)


def test_a_setting_is_no_task() -> None:
    setting = fgl.tasks.Nodes(clients=3)
    with pytest.raises(
        AttributeError, match=r"Nodes to have fedavg, .*Nodes\(...\).load\(seed=0\)"
    ):
        setting.fedavg  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="to have ferdavg, but got none$"):
        setting.ferdavg  # type: ignore[attr-defined]  # noqa: B018
    assert copy.deepcopy(setting) == setting == pickle.loads(pickle.dumps(setting))


def collections() -> list[fgl.Graph]:
    small, y = fgl.data.small_graphs(12, num_features=FEATURES)
    return [fgl.data.splits.random_split(fgl.Graph.join(small, y))]


def typed(target: str, both: bool = False) -> fgl.Graph:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(9, 3), torch.rand(9, 5)
    data[target].y = torch.arange(9) % 2
    for k, mask in enumerate(("train_mask", "val_mask", "test_mask")):
        data[target][mask] = torch.arange(9) % 3 == k
    data["user", "buys", "item"].edge_index = torch.arange(9).repeat(2, 1)
    own = fgl.data.from_hetero(data, both=both)
    return own.replace(x=own.x.to_dense() if isinstance(own.x, fgl.SparseMatrix) else own.x)


RELATIONS = [("user", "buys", "item"), ("item", "rev_buys", "user")]
WIDTHS = {"user": 3, "item": 5}


def hgt(relations: list[tuple[str, str, str]]) -> nn.Module:
    layer = pyg.HGTConv(WIDTHS, 2, (list(WIDTHS), relations))
    return fgl.nn.Hetero(layer, WIDTHS, relations, "user")


class Squeezed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(FEATURES, 1)

    def forward(self, x: Any, adj: Any) -> Any:
        return self.lin(adj @ x).squeeze(1)


class Broken(Squeezed):
    def forward(self, x: Any, adj: Any) -> Any:
        return {"item": x}["user"]


class Attribute(Squeezed):
    def forward(self, x: Any, adj: Any) -> Any:
        return self.convolution(x)


def run(net: nn.Module, clients: list[fgl.Graph], make: Any = fgl.tasks.node_task) -> None:
    first = (clients, clients) if make is fgl.tasks.graph_task else (None, clients)
    task = make(*first, net, TRAIN)
    fgl.run(task.fedavg, task, num_rounds=1)


def asked() -> fgl.Graph:
    """Sixty pairs of forty nodes."""
    own = graph(40)
    pairs = torch.randint(40, (2, 60), generator=torch.Generator().manual_seed(0))
    own = fgl.Graph(own.x, own.edge_index, edge_label_index=pairs, y=torch.arange(60) % CLASSES)
    return fgl.data.splits.random_split(own)


def on_graphs(net: nn.Module) -> None:
    run(net, collections(), fgl.tasks.graph_task)


def on_pairs(net: nn.Module) -> None:
    run(net, [asked()], lambda none, own, *how: fgl.tasks.node_task(own[0], own, *how))


def without_embedding() -> Any:
    net = Squeezed()
    return fgl.predict(net, net.state_dict(), graph(), return_embedding=True)


ITEMS_ALONE = {"item": 5}, 2, (["item"], [])
MODELS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "nodes' model for graphs": (lambda: on_graphs(model()), ["GCN", "pooled"]),
    "PyG's for graphs": (lambda: on_graphs(pyg.GCN(FEATURES, 8, 2, 2)), ["12 rows", "GCN", "pool"]),
    "graphs' model for nodes": (lambda: run(fgl.nn.GIN(FEATURES, 8, CLASSES), CLIENTS), ["GIN"]),
    "no embeddings": (lambda: fgl.methods.moon(fgl.fedavg(Squeezed())), ["Squeezed", "return_emb"]),
    "no embeddings in a prediction": (without_embedding, ["Squeezed", "return_embedding=True",
        "fgl.nn.Embedded"],),
    "a recipe's own model": (lambda: script("examples/fedego.py").fedego(METHOD), ["fedego",
        "'fanouts'", "GCN"],),
    "one logit": (lambda: run(Squeezed(), CLIENTS), ["Squeezed", "ANSWERS"]),
    "no relation": (lambda: run(hgt(RELATIONS[:1]), [typed("user")]), ["'user'", "both=True"]),
    "fewer relations": (lambda: run(fgl.nn.RGCN(8, 8, 2, num_relations=1, num_bases=1),
        [typed("user", both=True)]), ["relation"],),
    "a type left out": (lambda: run(fgl.nn.Hetero(pyg.HGTConv(*ITEMS_ALONE), {"item": 5}, [],
        "item"), [typed("item")]), ["5"],),
    "a key of the model's own": (lambda: run(Broken(), CLIENTS), ["Broken", "KeyError", "'user'"]),
    "an attribute of its own": (lambda: run(Attribute(), CLIENTS), ["Attribute", "convolution"]),
    "another width": (lambda: run(fgl.nn.GCN(7, 8, CLASSES), CLIENTS), ["6 features", "GCN"]),
    "pairs for nodes": (lambda: on_pairs(model()), ["pairs"]),
    "masks of another length": (lambda: graph(20, train_mask=torch.ones(7, dtype=torch.bool)),
        ["train_mask", "[20]", "[7]"],),
}  # fmt: skip


def test_a_model_that_does_not_fit_is_named_with_what_it_was_given() -> None:
    for name, (call, words) in MODELS.items():
        with warnings.catch_warnings(), pytest.raises((TypeError, ValueError)) as caught:
            warnings.simplefilter("ignore")
            call()
            pytest.fail(name)
        for word in words:
            assert word in str(caught.value), f"{name}: {caught.value}"


def test_a_time_of_nodes_is_not_called_a_time_of_edges() -> None:
    for of, words in (("user", "times of edges alone"), (RELATIONS[0], "are called edge_time")):
        data = HeteroData()
        data["user"].x, data["item"].x = torch.rand(9, 3), torch.rand(9, 5)
        data[RELATIONS[0]].edge_index = torch.arange(7).repeat(2, 1)
        data[of].time = torch.arange(9 if of == "user" else 7)
        with pytest.raises(ValueError, match=words):
            fgl.data.from_hetero(data)
        assert fgl.data.from_hetero(data, ignore=["time"]).num_nodes == 18
        size = len(data[of].time)
        plain = Data(x=torch.rand(9, 3), edge_index=torch.arange(7).repeat(2, 1))
        plain.time = torch.arange(size)
        with pytest.raises(ValueError, match=words):
            fgl.Graph.from_pyg(plain)


def test_batch_norm_trains_one_client_after_the_other_and_says_so() -> None:
    net = pyg.GCN(FEATURES, 8, 2, CLASSES, norm="batch_norm")
    with pytest.warns(UserWarning, match="BatchNorm1d would mix padded nodes"):
        result = fgl.run(fgl.fedavg(net), CLIENTS, num_rounds=2)
    assert all("BatchNorm1d" in record.one_by_one for record in result.history)
    alone = fgl.run(fgl.fedavg(net), CLIENTS[:1], num_rounds=1)
    assert alone.history[0].one_by_one == ""
    plain = fgl.run(fedavg(model()), CLIENTS, num_rounds=1)
    assert plain.history[0].one_by_one == ""


def test_what_numpy_and_dicts_give_is_taken() -> None:
    """A comparison of numpy is a bool, and what has a length is several."""
    names, graphs = {"model": 1}, dict(enumerate(CLIENTS))
    for name, call in {
        "bool": lambda: fgl.transforms.sparsified(METHOD, share=0.1, feedback=np.float64(1) > 0),
        "bools": lambda: fgl.methods.fedselect(METHOD, passes=list(np.arange(3) > 1)),
        "strict": lambda: fgl.run(METHOD, CLIENTS, num_rounds=0, strict=np.float64(1) > 0),
        "array": lambda: fgl.data.csbm(num_nodes=30, class_weights=np.array([0.5, 0.5])),
        "set": lambda: fgl.transforms.quantised(METHOD, parts={"model"}),
        "keys": lambda: fgl.transforms.quantised(METHOD, parts=names.keys()),
        "values": lambda: fgl.evaluate_on(METHOD, graph(), graphs.values()),
    }.items():
        try:
            call()
        except TypeError as error:
            pytest.fail(f"{name}: {error}")
    with pytest.raises(TypeError, match=r"num to be an integer, .*tensor.item\(\)"):
        fgl.data.splits.negative_edges(graph().edge_index, 9, torch.tensor(3))  # type: ignore[arg-type]
