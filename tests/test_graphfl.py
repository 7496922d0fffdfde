"""GraphFL: the gradient through the adaptation, what supports and what queries, what is used."""

from functools import partial
from typing import Any

import by_loops
import pytest
import torch
from conformance import known
from federations import close, fedavg, graph, same
from torch import Tensor, nn, optim

import fgl
from fgl import Method, Training
from fgl.federation import train
from fgl.methods import graphfl

LR = 0.1
SGD = Training(partial(optim.SGD, lr=LR), num_steps=1)
F64 = torch.float64
Params = dict[str, Tensor]


class Smooth(nn.Module):
    """Two graph convolutions without a kink, for finite differences."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor, adj: Any) -> Tensor:
        out: Tensor = self.last(torch.tanh(adj.to_dense().to(x.dtype) @ self.first(x)))
        return out


def smooth(how: Training = SGD) -> Method:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return fedavg(Smooth().to(F64), how)


def own(size: int = 20, **changes: Any) -> fgl.Graph:
    data = graph(size)
    return data.replace(x=data.x.to(F64), **changes)


def first_step(method: Method, data: fgl.Graph) -> tuple[fgl.Graph, Any]:
    _, context = method.receive({"model": method.initial()}, {}, data)
    torch.manual_seed(3)
    assert method.train.batches is not None
    return next(iter(method.train.batches(data, context)))


def gradient(method: Method, params: Params, seen: fgl.Graph, context: Any) -> Params:
    return by_loops.gradient(partial(method.loss, graph=seen, context=context), params)


def test_validation_nodes_query_only_where_it_is_said() -> None:
    data = own()
    for query, seen_ in (("half", False), ("all", False), ("validation", True)):
        method = graphfl(smooth(), query=query)  # type: ignore[arg-type]
        torch.manual_seed(0)
        other = data.replace(y=torch.where(data.val_mask, (data.y + 1) % 3, data.y))  # type: ignore[operator, arg-type]
        ends = [train(method, method.initial(), each, {}, seed=0).params for each in (data, other)]
        assert same(*ends) != seen_
    with pytest.raises(ValueError, match="Expected graph to have a validation mask"):
        first_step(graphfl(smooth(), query="validation"), data.replace(val_mask=None))
    made = known("ego", 0.0, F64)
    with pytest.raises(ValueError, match="Expected query to be half or all"):
        first_step(graphfl(made.fedavg, query="validation"), made.clients[0])


@pytest.mark.slow
def test_what_is_used_is_adapted_and_always_the_same() -> None:
    base, data = smooth(), own()
    method = graphfl(base, adapt_steps=3, adapt_lr=0.5)
    params: Any = method.initial()
    message: Any = {"model": params}
    got = method.deploy(message, {}, data)
    for _ in range(3):
        grads = gradient(base, params, data, {})
        params = {name: value - 0.5 * grads[name] for name, value in params.items()}
    close(got, params, atol=1e-12)
    assert not any(value.requires_grad for value in got.values())
    for task in ("ego", "links", "graphs"):  # whose steps are drawn
        made = known(task, 0.5, F64)
        drawn = graphfl(made.fedavg, adapt_steps=2)
        result = fgl.run(drawn, made.clients, num_rounds=1)
        where = result.outbox[1], result.client_states[1], made.clients[1]
        state = torch.get_rng_state()
        one = drawn.deploy(*where)
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(9)
        assert same(one, drawn.deploy(*where))
        assert not same(one, made.fedavg.deploy(*where))


def test_all_clients_weigh_the_same_unless_it_is_said() -> None:
    assert graphfl(smooth()).rules.max_examples == 1
    assert graphfl(smooth(), equal=False).rules.max_examples == smooth().rules.max_examples
