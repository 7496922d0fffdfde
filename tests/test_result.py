"""Results: what one sees of a run, its models, its best round, and what it is written as."""

import csv
import json
import math
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import fedavg, graphs, model, refuses

import fgl
from fgl import Result
from fgl.federation import Round
from fgl.methods import fedper, fedprox, local


def went(method: fgl.Method, **how: Any) -> Result:
    """Two rounds, in which client 1 drops out of the second."""
    clients = graphs()
    score = fgl.evaluate_on(method, clients[2], clients)
    how = {"dropouts": lambda index, client: (index, client) == (1, 1), "evaluate": score, **how}
    return fgl.run(method, clients, num_rounds=2, **how)


def test_a_result_without_scores_or_rounds_is_told_too() -> None:
    method = fedavg(model())
    assert "no metrics" in repr(fgl.run(method, graphs(), num_rounds=1))
    assert len(repr(fgl.run(method, graphs(), num_rounds=0)).splitlines()) == 3


def test_training_that_sends_nothing_has_no_bytes() -> None:
    """Clients alone, and one client with all data, need no server: not even the first model."""
    alone = went(local(fedavg(model())))
    whole = fgl.run(fedavg(model()), graphs()[:1], num_rounds=1)
    assert whole.history[0].bytes_up > 0
    for result in (alone, whole):
        assert not any(result.traffic) and "\n  bytes: -\n" in repr(result)
    sent = went(fedavg(model()))
    assert sent.traffic == [record.bytes_up + record.bytes_down for record in sent.history]
    assert min(sent.traffic) > 0


def test_a_personal_model_is_asked_for_by_client() -> None:
    result = went(fedper(fedavg(model()), shared=["convs.0"]))
    with pytest.raises(ValueError, match=r"to use one model, but got another of client 1: result"):
        _ = result.model
    for client in range(4):
        kept = result.client_states[client]["model"]
        for name, tensor in result.model_of(client).state_dict().items():
            assert torch.equal(tensor, kept[name])  # type: ignore[index]
    refuses("Expected client to be < 4, but got 4", lambda: result.model_of(4))
    assert fgl.run(local(fedavg(model())), graphs(), num_rounds=0).model is not None


def test_a_resumed_result_knows_its_model_and_a_pickled_one_does_not(tmp_path: Path) -> None:
    went(fedavg(model()), checkpoint=tmp_path)
    result = went(fedavg(model()), checkpoint=tmp_path)  # nothing is left to play
    assert isinstance(result.model, fgl.nn.GCN)
    again = pickle.loads(pickle.dumps(result))
    assert again.history == result.history
    with pytest.raises(ValueError, match="which knows its method, but got one that was made by"):
        _ = again.model


def test_models_of_clients_elsewhere_are_those_of_the_messages() -> None:
    result = went(fedavg(model()))
    away = replace(result, clients=(), client_states={})
    for name, tensor in away.model.state_dict().items():
        assert torch.equal(tensor, result.model.state_dict()[name])
    away = replace(went(local(fedavg(model()))), clients=(), client_states={})
    refuses("clients to be in this process, since their models", lambda: away.model_of(1))


def history(**curves: list[float]) -> list[Round]:
    each = zip(*curves.values(), strict=True)
    return [
        Round(index, [0], metrics=dict(zip(curves, values, strict=True)))
        for index, values in enumerate(each)
    ]


def test_a_best_round_without_metrics_says_what_is_missing() -> None:
    bare = [Round(0, [0])]
    for history, select, what in (([], "", "a metric"), (bare, "val_auc", "val_auc")):
        with pytest.raises(ValueError, match=f"rounds with {what}, .* no client had examples to"):
            Result({}, {}, {}, history, select=select).best()


def test_early_stop_asks_the_tasks_metric_and_refuses_one_that_no_round_has() -> None:
    rounds = [Round(k, [0], metrics={"val_auc": -k / 9, "val_loss": 2.0 - k}) for k in range(3)]
    for select, ends in (("", True), ("val_auc", True), ("-val_loss", False)):
        result = Result({}, {}, {}, rounds, select="val_auc")
        assert fgl.experiment.early_stop(2, select)(rounds[2], result) is ends
    wrong = fgl.experiment.early_stop(2, "val_accuracy")
    refuses(r"early_stop\(select='val_accuracy'\): .*val_auc", lambda: wrong(rounds[2], result))
    bare = [Round(0, [0])]
    assert not fgl.experiment.early_stop(2)(bare[0], Result({}, {}, {}, bare))  # not scored yet


def test_a_result_as_a_dict_and_a_table(tmp_path: Path) -> None:
    result = went(fedprox(fedavg(model()), mu=0.1), config={"dataset": "made up"})
    made = result.to_dict()
    assert list(made) == ["method", "config", "rounds"]
    assert made["method"] == repr(result.method) and "mu=0.1" in made["method"]
    assert Result({}, {}, {}, []).to_dict()["method"] == ""
    assert made["config"]["dataset"] == "made up"
    assert made["rounds"][1]["dropped"] == {1: "dropped out"}
    json.dumps(made)
    made["config"]["dataset"] = "another"
    assert result.config["dataset"] == "made up"
    result.to_csv(tmp_path / "new" / "one" / "run.csv")
    with open(tmp_path / "new" / "one" / "run.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["dropped"]) for row in rows] == [0, 1]
    for row, record in zip(rows, result.history, strict=True):
        assert float(row["test_accuracy"]) == record.metrics["test_accuracy"]
        assert float(row["train_loss"]) == record.loss or math.isnan(record.loss)
    with pytest.raises(OSError, match="Expected path to be a file that can be written"):
        result.to_csv(tmp_path)


def test_a_frame_without_pandas_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pandas to be installed for to_pandas, but got none"):
        Result({}, {}, {}, []).to_pandas()


class Heard:
    """A callback that notes when it is asked."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def begin(self, result: Result) -> None:
        self.said.append(f"begin {len(result.history)}")

    def __call__(self, record: Round, result: Result) -> bool:
        self.said.append(f"round {record.round}")
        return record.round == 2

    def end(self, result: Result) -> None:
        self.said.append(f"end {len(result.history)}")


def test_a_callback_is_asked_before_the_first_round_and_after_the_last(tmp_path: Path) -> None:
    method, heard = fedavg(model()), Heard()
    how: Any = {"callbacks": [heard, lambda record, result: None], "checkpoint": tmp_path}
    fgl.run(method, graphs(), num_rounds=1, **how)
    assert heard.said == ["begin 0", "round 0", "end 1"]
    fgl.run(method, graphs(), num_rounds=5, **how)
    assert heard.said[3:] == ["begin 1", "round 1", "round 2", "end 3"]
    with pytest.warns(UserWarning, match="after 3 of 5 rounds"):  # there is no round to come
        fgl.run(method, graphs(), num_rounds=5, **how)
    assert len(heard.said) == 7


def test_a_result_predicts_and_its_model_says_how() -> None:
    task = fgl.tasks.Nodes(clients=3, hidden=4).load(0)
    result = fgl.run(fgl.methods.local(task.fedavg), task, num_rounds=1)
    own = result.model_of(1)
    expected = own(task.whole.x, task.whole.adj)
    assert torch.equal(result.predict(task.whole, client=1), expected)
    assert not torch.equal(result.predict(task.whole, client=0), expected)
    refuses(r"a Graph: result.predict\(graph\)", lambda: own(task.whole), TypeError)
    refuses("another of client 1", lambda: result.predict(task.whole))
