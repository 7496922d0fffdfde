"""A federation that trains in milliseconds, for what is tried a thousand times."""

from functools import partial
from typing import Any

import torch

import fgl
from fgl import Training


def federation(num_clients: int = 3, hidden: int = 4) -> tuple[fgl.Method, list[fgl.Graph]]:
    """Random graphs, and FedOpt of a GCN with dropout: the server keeps a state of its own."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for num_nodes in range(10, 10 + num_clients):
        edges = torch.randint(num_nodes, (2, 3 * num_nodes), generator=generator)
        x = torch.rand(num_nodes, 5, generator=generator)
        y = torch.randint(2, (num_nodes,), generator=generator)
        clients.append(fgl.Graph(x, edges, y=y, num_classes=2))
    torch.manual_seed(0)
    train = Training(partial(torch.optim.SGD, lr=0.1), num_steps=1)
    method = fgl.fedavg(fgl.nn.GCN(5, hidden, 2, dropout=0.5), train=train)
    return fgl.methods.fedopt(method, rule="adam"), clients


def ending(result: fgl.Result) -> tuple[Any, ...]:
    """All that a run leaves behind but its seconds; compared with `equal`."""
    history = [{**vars(record), "seconds": 0} for record in result.history]
    states = {key: dict(state) for key, state in sorted(result.client_states.items())}
    return result.outbox[0], dict(result.server_state), states, history


def equal(a: Any, b: Any) -> bool:
    """Bit for bit, all the way down."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
