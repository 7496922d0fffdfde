"""Events that were silent before: a metric that no round has, gaps in tables, shapes of output."""

from typing import Any

import pytest
import torch
from federations import graphs, refuses

import fgl
from fgl.data import from_tables
from fgl.tasks.task import _send_one


def test_a_missing_value_is_a_gap_of_a_target_and_no_feature() -> None:
    edges = {"source": ["a"], "target": ["b"]}
    nodes: dict[str, list[Any]] = {"id": ["a", "b", "c"], "age": [1.5, 2.0, "NA"]}
    assert from_tables(edges, nodes, y="age").y.isnan().tolist() == [False, False, True]  # type: ignore[union-attr]
    refuses("'age', but got 'NA'.*mean", lambda: from_tables(edges, nodes, x=["age"]))
    mended = {**nodes, "age": [1.0, 2.0, 1.5], "unknown": [0, 0, 1]}
    assert from_tables(edges, mended, x=["age", "unknown"]).x.shape == (3, 2)


def test_a_metric_that_no_round_has_is_named() -> None:
    rounds = [fgl.federation.Round(k, [0], metrics={"val_accuracy": k / 2}) for k in range(2)]
    result = fgl.Result({}, {}, {}, rounds, select="val_acuracy")
    with pytest.warns(UserWarning, match="did you mean 'val_accuracy'"):
        assert result.best().round == 1
    with pytest.warns(UserWarning, match="did you mean 'val_accuracy'"):
        fgl.federation.best_round(rounds, "val_acuracy")
    assert fgl.checks.did_you_mean("val_f1", ["test_f1"]) == ""


def test_a_client_without_examples_has_no_weight_among_equal_clients() -> None:
    for own, weight in (
        (graphs()[0], 1),
        (graphs()[0].replace(train_mask=torch.zeros(graphs()[0].num_nodes, dtype=torch.bool)), 0),
    ):
        assert int(_send_one({}, {}, {}, own)[0]["num_examples"]) == weight  # type: ignore[arg-type]


def test_fedsage_plus_names_the_task_that_it_needs() -> None:
    task = fgl.tasks.Forecast(clients=3, hidden=4).load(seed=0)
    with pytest.raises(ValueError, match="generator_task, but got one of Forecaster"):
        fgl.methods.fedsage_plus(task.fedavg)


class Squeezed(torch.nn.Module):
    """A forecaster whose output is reshaped by a function."""

    def __init__(self, inner: torch.nn.Module, how: Any) -> None:
        super().__init__()
        self.inner, self.how = inner, how

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.how(self.inner(x, edge_index))


def test_output_of_another_shape_is_refused_by_predict() -> None:
    task = fgl.tasks.Forecast(clients=3, hidden=4, horizons=(3,)).load(seed=0)
    own = task.clients[0].select(torch.arange(task.clients[0].num_nodes))  # windows as nodes
    for how in (
        lambda out: out.squeeze(-1),
        lambda out: out.transpose(1, 2),
        lambda out: out[None],
    ):
        net = Squeezed(task.fedavg.model, how)
        with pytest.raises(ValueError, match="windows by nodes by horizons"):
            fgl.predict(net, net.state_dict(), own)
