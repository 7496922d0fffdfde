"""How many clients train at once where nobody says, and what becomes of those that cannot."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import end, fedavg, graph, graphs, model, refuses, same
from torch import nn

import fgl
from fgl import Training
from fgl.federation import choose
from fgl.federation.executors.batch.choice import _data_bytes, _trained_bytes


def refusing(after: int = 0) -> fgl.Method:
    """FedAvg whose loss asks for a number once the server has averaged `after` times."""
    plain = fedavg(model(dropout=0.0))

    def loss(params: Any, data: Any, context: Any) -> Any:
        made = plain.loss(params, data, context)
        if int(context.get("round", 0)) >= after:
            float(made.detach())  # no batch can say it
        return made

    def aggregate(inbox: Any, state: Any) -> Any:
        outbox, new = plain.aggregate(inbox, state)
        played = state.get("round", torch.tensor(0)) + 1
        sent = {k: {**message, "round": played} for k, message in outbox.items()}
        return sent, {**new, "round": played}

    return replace(plain, loss=loss, aggregate=aggregate)


def test_the_number_is_what_fits_the_cache() -> None:
    method, clients = fedavg(model()), [graph(20)] * 50
    numbers = [choose(method, clients, cache=cache).clients_at_once for cache in (10**4, 10**5)]
    assert 1 <= numbers[0] < numbers[1] < 50
    assert choose(method, clients).clients_at_once == 50


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, adj: Any) -> torch.Tensor:
        out: torch.Tensor = self.linear(self.norm(x))
        return out


def hooked(tensors: Any) -> torch.optim.Optimizer:
    made = torch.optim.SGD(tensors, lr=0.1)
    made.register_step_post_hook(lambda *_: None)
    return made


@pytest.mark.parametrize(("method", "clients", "why"), [
    (fedavg(model(), Training(hooked)), graphs(), "hooks"),
    (fedavg(model(), Training(torch.optim.LBFGS)), graphs(), "element-wise"),
    (fgl.fedavg(Normed()), graphs(), "BatchNorm1d"),
    (fedavg(model()), [graphs()[0], graphs()[1].replace(num_classes=7)], "num_classes"),
    (fedavg(model()), graphs()[:1], "one client"),
])  # fmt: skip
def test_what_no_batch_takes_trains_alone(method: Any, clients: Any, why: str) -> None:
    made = choose(method, clients)
    assert made.clients_at_once == 1
    assert why in made.why


def test_clients_are_divided_into_a_rounded_number_of_batches() -> None:
    """Forty that need 1.4 caches are one batch, and two where they need 1.6."""
    method, one = fedavg(model()), graph(20)
    taken = 40 * (_data_bytes(method, one) + _trained_bytes(method))
    numbers = [choose(method, [one] * 40, cache=int(taken / n)) for n in (1.4, 1.6, 2.4)]
    assert [made.clients_at_once for made in numbers] == [40, 20, 20]


def test_a_loss_that_a_batch_refuses_trains_one_by_one_to_the_same_end() -> None:
    run = partial(fgl.run, refusing(), graphs(), num_rounds=3)
    auto, loop = run(), run(clients_at_once=1)
    ends = [{**end(made), "history": None} for made in (auto, loop)]
    assert same(*ends)
    assert [r.loss for r in auto.history] == [r.loss for r in loop.history]
    assert all("vmap" in record.one_by_one for record in auto.history)
    refuses("vmap", lambda: run(clients_at_once="all"), RuntimeError)


@pytest.mark.few
@pytest.mark.filterwarnings("ignore:Expected the checkpoint to know all settings")
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_late_refusal_is_recorded_and_resumed(explicit: bool, stop: int, tmp_path: Path) -> None:
    """The round of the refusal is in the history, so a resumed run goes on the same way."""
    method, clients = refusing(after=2), graphs()
    whole = fgl.run(method, clients, num_rounds=4)
    assert [bool(record.one_by_one) for record in whole.history] == [False, False, True, True]
    fgl.run(method, clients, num_rounds=stop, checkpoint=tmp_path)
    number = choose(method, clients).clients_at_once
    given: Any = {"clients_at_once": number} if explicit and stop == 3 else {}
    again = fgl.run(method, clients, num_rounds=4, checkpoint=tmp_path, **given)
    assert same(end(again), end(whole))
    assert [r.one_by_one for r in again.history] == [r.one_by_one for r in whole.history]
    assert [r.padding for r in again.history] == [r.padding for r in whole.history]


def test_collections_share_a_batch_where_graphs_of_their_size_train_alone() -> None:
    whole = fgl.Graph.join(*fgl.data.small_graphs(8))
    for own, net, together in ((whole, fgl.nn.GIN(5, 8, 2), True), (graph(40), model(), False)):
        method = fgl.fedavg(net)
        found = choose(method, [own] * 5, cache=5 * _data_bytes(method, own)).clients_at_once
        assert (found > 1) == together
