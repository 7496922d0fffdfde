"""Tiny federations, the methods under test, and a run by hand: shared by the federation's tests."""

import copy
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import fgl
from fgl import Method, Result, Training, augment, methods
from fgl.federation import Here, Inbox, fold_in, node_minibatches, num_bytes, train
from fgl.federation.method.compose import unsealed
from fgl.federation.saved.identity import identity

ROOT = Path(__file__).parents[1]
FEATURES, CLASSES = 6, 3
REPORT = [  # keys of a report
    *("recipe", "dataset", "clients", "rounds", "seed", "metrics"),
    *("seconds_per_round", "bytes_up", "bytes_down", "config"),
    *("best_round", "curves", "dropped", "layers"),
]


def data_folder(name: str) -> Path:
    """The raw files of a public dataset; where there are none, the test is skipped."""
    root = os.environ.get("FGL_DATA")
    if not root or not Path(root, name, "raw").is_dir():
        pytest.skip(f"FGL_DATA does not name a folder with {name}")
    return Path(root, name, "raw")


def pairs(graph: fgl.Graph) -> list[tuple[int, int]]:
    """Edges as a list of ends."""
    return [*zip(*graph.edge_index.tolist(), strict=True)]


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of this seed."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def refuses(match: str, call: Callable[[], object], kind: Any = ValueError) -> None:
    """The call raises an error of this kind, whose text matches."""
    with pytest.raises(kind, match=match):
        call()


@cache
def script(path: str) -> ModuleType:
    """A file outside the package as a module: ``script("examples/fgssl.py")``."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(f"script_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks there for the types of its fields
    spec.loader.exec_module(module)
    return module


def printed(*argv: str, **env: str) -> str:
    """What a fresh Python process prints: ``printed("-c", "print(1)", PYTHONHASHSEED="5")``."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    command = [sys.executable, *argv]
    return subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def graph(num_nodes: int = 20, *, seed: int = 0, train: float = 0.5, **changes: Any) -> fgl.Graph:
    """A random undirected graph whose features tell a bit about the labels."""
    generator = torch.Generator().manual_seed(1000 * num_nodes + seed)
    y = torch.randint(CLASSES, (num_nodes,), generator=generator)
    x = torch.randn(num_nodes, FEATURES, generator=generator)
    x[:, :CLASSES] += nn.functional.one_hot(y, CLASSES)
    edges = torch.randint(num_nodes, (2, 2 * num_nodes), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    order = torch.rand(num_nodes, generator=generator)
    return fgl.Graph(
        x,
        torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1),
        y=y,
        num_classes=CLASSES,
        train_mask=order < train,
        val_mask=(order >= train) & (order < 0.75),
        test_mask=order >= max(train, 0.75),
    ).replace(**changes)


def graphs(sizes: Sequence[int] = (12, 20, 31, 17)) -> list[fgl.Graph]:
    """Clients of unequal size."""
    return [graph(size, seed=client) for client, size in enumerate(sizes)]


def double(clients: Sequence[fgl.Graph]) -> list[fgl.Graph]:
    """The same clients in double, where rounding is far below any tolerance."""
    return [own.replace(x=own.x.double()) for own in clients]  # type: ignore[union-attr]


def without_training_nodes(num_nodes: int = 20, *, seed: int = 0) -> fgl.Graph:
    return graph(num_nodes, seed=seed, train_mask=torch.zeros(num_nodes, dtype=torch.bool))


def model(kind: Callable[..., nn.Module] = fgl.nn.GCN, *, dropout: float = 0.5) -> nn.Module:
    """A small network, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(FEATURES, 8, CLASSES, dropout=dropout)


SGD = Training(partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3), num_steps=2)


# What FGSSL's models look at; a test that cannot have randomness puts something else here.
VIEWS: dict[str, Callable[..., Any]] = {"strong": augment.strong, "weak": augment.weak}


def minibatches(how: Training, batch_size: int | None, num_epochs: int = 2) -> Training:
    """The same training, on minibatches of nodes where there is a `batch_size`."""
    if batch_size is None:
        return how
    batches = partial(node_minibatches, batch_size=batch_size, num_epochs=num_epochs)
    return replace(how, num_steps=None, batches=batches)


def fedavg(net: nn.Module, train: Training = SGD) -> Method:
    return fgl.fedavg(net, train=train)


def ruled(method: Method, **rules: Any) -> Method:
    """The method with some other rules of its rounds."""
    return replace(method, rules=replace(method.rules, **rules))


def sending(method: Method, change: Callable[[Any, fgl.Graph], Any]) -> Method:
    """The method, whose clients send what ``change(message, graph)`` makes of a message."""

    def send(params: Any, context: Any, state: Any, own: fgl.Graph) -> Any:
        message, state = method.send(params, context, state, own)
        return change(message, own), state

    return replace(unsealed(method), send=send)


def keep_own(inbox: Inbox, state: Any) -> Any:
    """Every client gets its own model back."""
    return {client: {"model": message["model"]} for client, message in inbox.items()}, state


def local(net: nn.Module, train: Training = SGD) -> Method:
    """A server that gives everybody their own model back, so that the outbox shows all of them."""
    return replace(fedavg(net, train), aggregate=keep_own)


def fedprox(net: nn.Module, train: Training = SGD, *, mu: float = 0.5) -> Method:
    return methods.fedprox(fedavg(net, train), mu=mu)


def fedopt(
    net: nn.Module, train: Training = SGD, *, rule: Any = "adam", lr: float = 0.01
) -> Method:
    return methods.fedopt(fedavg(net, train), rule=rule, server_lr=lr)


def fgssl(net: nn.Module, train: Training = SGD, **options: Any) -> Method:
    views = {
        "local_view": lambda x, adj: VIEWS["strong"](x, adj),
        "global_view": lambda x, adj: VIEWS["weak"](x, adj),
    }
    return script("examples/fgssl.py").fgssl(fedavg(net, train), **{**views, **options})


class Elsewhere(Here):
    """Clients of this process that the server takes for clients elsewhere."""

    def __call__(self, *given: Any, **how: Any) -> Any:
        executor = super().__call__(*given, **how)
        executor.elsewhere = True
        return executor


# Methods that several files try.
METHODS: dict[str, Callable[..., Method]] = {
    "fedavg": fedavg,
    "local": local,
    "fedprox": fedprox,
    "fedopt-adam": partial(fedopt, rule="adam"),
    "fgssl": fgssl,
    "fnsc-only": partial(fgssl, lambda_d=0.0),
    "fgsd-only": partial(fgssl, lambda_c=0.0),
    "fgssl-code": partial(fgssl, keys="local", denominator="all", direction="symmetric"),
}


def receive_as_a_run(method: Any, message: Any, state: Any, own: fgl.Graph) -> tuple[Any, Any]:
    """What `receive` makes, with what the machine adds to it."""
    params, context = method.receive(message, state, own)
    return params, {**context, "start": params} if isinstance(context, dict) else context


def by_hand(
    method: Method,
    clients: Sequence[fgl.Graph],
    num_rounds: int,
    *,
    seed: int = 0,
    order: Sequence[int] | None = None,
    absent: Callable[[int, int], bool] = lambda index, client: False,
) -> Result:
    """What `fgl.run` should do, call by call, in any order, with the seeds that are documented."""
    message: Any = {"model": method.common()}
    outbox: Any = dict.fromkeys(range(len(clients)), message)
    server, states, history = message, {}, []
    keep, joined = method.train.keep_optimizer, 0
    if method.rules.joining is not None:
        said = {k: method.rules.joining.say(own) for k, own in enumerate(clients)}
        outbox, server = method.rules.joining.welcome(Inbox(said, len(clients), outbox), server)
        joined = sum(map(num_bytes, said.values()))
    method.model.eval()  # as a run has it, but for local training
    for index in range(num_rounds):
        inbox, record = {}, fgl.federation.Round(index, [])
        record.bytes_down = sum(map(num_bytes, outbox.values()))
        for client in order or range(len(clients)):
            if absent(index, client):
                continue
            own, state = clients[client], states.get(client, {})
            torch.manual_seed(fold_in(seed, index, client, "receive"))
            params, context = receive_as_a_run(method, outbox[client], state, own)
            how = {"optimizer": state.get("optimizer", {})} if keep else {}
            done = train(method, params, own, context, seed=fold_in(seed, index, client), **how)
            told = {
                "num_steps": torch.tensor(len(done.losses)),
                "losses": torch.tensor(done.losses, dtype=torch.float64),
            }
            torch.manual_seed(fold_in(seed, index, client, "send"))
            upload, new = method.send(done.params, {**context, "trained": told}, state, own)
            inbox[client] = upload
            states[client] = {**new, "optimizer": done.optimizer} if keep else new
            record.bytes_up += num_bytes(upload)
        record.bytes_up += 0 if index else joined
        history.append(record)
        if inbox:
            torch.manual_seed(fold_in(seed, index, "server", "aggregate"))
            made, server = method.aggregate(Inbox(inbox, len(clients), outbox), server)
            outbox = {client: made.get(client, old) for client, old in outbox.items()}
    return Result(outbox, dict(server), dict(sorted(states.items())), history)


def same(a: Any, b: Any) -> bool:
    """Bit for bit, all the way down: tensors with dtype, keys with their order, NaN as NaN."""
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or a.dtype != b.dtype or a.shape != b.shape:
            return False
        return torch.equal(a, b) or torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return repr(a) == repr(b)


def close(a: Any, b: Any, atol: float = 1e-6) -> None:
    """Tensors within `atol`, all the way down, or an `AssertionError`."""
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def end(result: Result) -> dict[str, Any]:
    """Everything that a run leaves behind, but the seconds it took, as plain dicts."""
    history = [{**vars(record), "seconds": None} for record in result.history]
    return copy.deepcopy(
        {
            "outbox": dict(result.outbox),
            "server": dict(result.server_state),
            "clients": dict(sorted(result.client_states.items())),
            "history": history,
        }
    )


def identified(method: Method) -> dict[str, Any]:
    """What a checkpoint of a run compares, in the end as JSON."""
    return identity(method, 0, 1.0, 0.0, None)
