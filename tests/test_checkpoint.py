"""Checkpoints are whole or not there, know when they are damaged, and belong to one run."""

import hashlib
import os
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import federations
import pytest
import torch
from federations import SGD, end, fedavg, fedopt, graph, graphs, model, refuses, ruled, same

import fgl
from fgl import Result, Training
from fgl.federation.saved.identity import identity

ROUNDS = 4


def names(folder: Path) -> list[str]:
    """What is in a folder but for the history and the lock, which are always there."""
    found = sorted(path.name for path in folder.iterdir())
    return [name for name in found if name not in ("history.jsonl", "lock")]


def go(folder: Path | None, num_rounds: int = ROUNDS, **options: Any) -> Result:
    return fgl.run(fedopt(model()), graphs(), num_rounds=num_rounds, checkpoint=folder, **options)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return end(go(None))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that was stopped after three rounds, its files of rounds 2 and 3."""
    go(tmp_path, 3)
    return tmp_path


def test_half_written_files_are_cleared_away(folder: Path, undisturbed: dict[str, Any]) -> None:
    whole = (folder / "round-000003.ckpt").read_bytes()
    (folder / "round-000004.ckpt.partial").write_bytes(whole[: len(whole) // 2])
    (folder / "round-000009.ckpt.partial").write_bytes(whole)
    (folder / "notes.txt").write_text("mine")
    assert same(end(go(folder)), undisturbed)
    assert names(folder) == ["notes.txt", "round-000003.ckpt", "round-000004.ckpt"]


def test_a_file_appears_whole_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, Any]
) -> None:
    """The disk fills up, or power goes, at any moment of a save: the old files are untouched."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*_: Any) -> None:
                raise OSError("No space left on device")

            patch.setattr(os, function, fail)
            refuses("No space left", lambda: go(folder), OSError)
        for name, content in before.items():
            assert (folder / name).read_bytes().startswith(content)  # the history only grows
        assert "round-000004.ckpt" not in names(folder)
    assert same(end(go(folder)), undisturbed)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "empty":
        content.clear()
    elif how.startswith("cut"):
        del content[int(float(how.removeprefix("cut ")) * len(content)) :]
    elif how == "zeros":
        content[:] = bytes(len(content))
    elif how == "longer":
        content += b"x"
    else:
        position = {"magic": 3, "checksum": 20, "start": 50, "middle": len(content) // 2}
        content[position.get(how, len(content) - 1)] ^= 1
    path.write_bytes(bytes(content))


DAMAGES = ["empty", "cut 0.0001", "cut 0.5", "cut 0.999", "zeros", "longer"]
DAMAGES += ["magic", "checksum", "start", "middle", "end"]


@pytest.mark.few
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_one_gives_way(how: str, folder: Path, undisturbed: dict[str, Any]) -> None:
    damage(folder / "round-000003.ckpt", how)
    seen = []
    with pytest.warns(UserWarning, match=r"round-000003.ckpt to be a whole .* previous") as caught:
        result = go(folder, callbacks=[lambda record, _: seen.append(record.round)])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert seen == [2, 3]
    assert same(end(result), undisturbed)
    assert same(end(go(folder)), undisturbed)  # and now there is nothing to warn of


def sealed(head: bytes, payload: bytes) -> bytes:
    """A file with a right checksum."""
    return head + hashlib.sha256(head + payload).digest() + payload


def test_a_file_of_something_else_is_not_executed(folder: Path) -> None:
    """Even with a right checksum only tensors and plain values are read."""
    import io
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(folder / "evil"),)

    buffer = io.BytesIO()
    torch.save({"identity": Evil()}, buffer)
    (folder / "round-000003.ckpt").write_bytes(sealed(b"fgl-ckpt 3\n", buffer.getvalue()))
    with pytest.raises(pickle.UnpicklingError):
        go(folder)
    assert "evil" not in names(folder)


def sums_of(name: str, serve: Any) -> Any:
    return replace(fedopt(model()), aggregate=fgl.federation.OfSums(name, serve))


def first_server(*given: Any) -> Any:
    return {}, given[-1]


def second_server(*given: Any) -> Any:
    return {}, given[-1]


def test_the_function_and_the_key_of_a_server_are_of_a_runs_identity() -> None:
    """Plain functions have no settings, so their names stand for them, and a key is a setting."""
    means = fgl.federation.OfMeans
    methods = [
        sums_of("model", first_server),
        sums_of("model", second_server),
        sums_of("grads", first_server),
        replace(fedopt(model()), aggregate=means(first_server)),
        replace(fedopt(model()), aggregate=means(second_server)),
    ]
    texts = [str(identity(method, 0, 1.0, 0.0, None)) for method in methods]
    assert len(set(texts)) == len(texts)
    assert str(identity(sums_of("model", first_server), 0, 1.0, 0.0, None)) == texts[0]


def one_number_off(data: fgl.Graph) -> fgl.Graph:
    x = data.x.clone()
    x[-1, -1] += 1e-6
    return data.replace(x=x)


OTHERS: dict[str, Any] = {
    "seed": {"seed": 1},
    "participation": {"participation": 0.5},
    "dropouts": {"dropouts": 0.5},
    "config": {"config": {"lr": 0.2}},
    "clients": {"clients": graphs()[:3]},
    "clients ": {"clients": [*graphs()[:3], graph(18)]},
    "clients' data": {"clients": [*graphs()[:3], one_number_off(graphs()[3])]},
    "clients' data ": {"clients": [*graphs()[:3], graphs()[3].replace(y=graphs()[3].y.flip(0))]},
    "whole graph": {"clients": fgl.tasks.node_task(graph(30), graphs(), model(), SGD)},
    "model": {"method": fedopt(fgl.nn.GCN(6, 9, 3))},
    "optimizer": {"method": fedopt(model(), Training(partial(SGD.optimizer, lr=0.2), 2))},
    "num_steps": {"method": fedopt(model(), replace(SGD, num_steps=3))},
    "adjust": {"method": fedopt(model(), replace(SGD, adjust=lambda grads, *_: grads))},
    "settle": {"method": fedopt(model(), replace(SGD, settle=lambda new, *_: new))},
    "num_steps ": {"method": fedopt(model(), federations.minibatches(SGD, 3))},
    "exchange": {"method": ruled(fedopt(model()), exchange=2)},
    "max_change": {"method": ruled(fedopt(model()), max_change=10.0)},
    "clients_at_once": {"clients_at_once": 2},
}


@pytest.mark.few
@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_run_is_refused_and_left_alone(what: str, folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    options = {"method": fedopt(model()), "clients": graphs(), **OTHERS[what]}
    text = rf"checkpoint .*round-000003.ckpt to be of this run with {what.strip()}=.*, but got"
    refuses(text, lambda: fgl.run(**options, num_rounds=ROUNDS, checkpoint=folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_another_score_or_other_test_data_is_refused(tmp_path: Path) -> None:
    """The rounds of one history have one score; its graphs may be none of the clients'."""
    whole, other = graph(30), one_number_off(graph(30))
    collection = fgl.Graph.join(*fgl.data.load_graphs("synthetic"))
    parts = [collection.select(torch.arange(k, 40, 4)) for k in range(4)]
    gin = fgl.nn.GIN(collection.num_features, 4, 2)
    splits = [fgl.data.splits.edge_split(own, seed=0) for own in graphs()]
    later = replace(splits[3], test_negatives=splits[3].test_negatives.flip(1))
    vgae = fgl.nn.VGAE(6, 4, 2)
    link, graphwise = fgl.tasks.link_task, fgl.tasks.graph_task

    def scored(on: Any) -> Any:
        return {"evaluate": fgl.evaluate_on(fedavg(model()), on, graphs())}

    def ran(task: Any) -> Any:
        return {"method": task.fedavg, "clients": task}

    cases = [
        (scored(whole), scored(other)),
        (scored(whole), scored(graphs())),
        ({"evaluate": lambda *_: {}}, scored(whole)),
        (
            ran(graphwise(parts[:2], parts[2:], gin, SGD)),
            ran(graphwise(parts[:2], parts[:1:-1], gin, SGD)),
        ),
        (ran(link(splits, vgae, SGD)), ran(link([*splits[:3], later], vgae, SGD))),
    ]
    for number, (first, second) in enumerate(cases):
        how: Any = {"method": fedopt(model()), "clients": graphs(), "num_rounds": 1}
        how |= {"checkpoint": tmp_path / str(number)}
        fgl.run(**{**how, **first})
        assert len(fgl.run(**{**how, **first, "num_rounds": 2}).history) == 2
        with pytest.raises(ValueError, match="of this run with evaluate="):
            fgl.run(**{**how, **second, "num_rounds": 3})
    how["checkpoint"] = tmp_path / "0"
    assert len(fgl.run(**{**how, "num_rounds": 2}).history) == 2  # a look at what there is


def test_fewer_rounds_than_were_saved_are_refused(folder: Path) -> None:
    refuses(r"num_rounds .*got 2", lambda: go(folder, 2))
    assert names(folder) == ["round-000002.ckpt", "round-000003.ckpt"]


def test_an_interrupted_round_is_all_that_is_lost(tmp_path: Path) -> None:
    """Ctrl-C, wherever it strikes."""
    undisturbed = end(go(None, clients_at_once=1))
    for stage in ("receive", "loss", "send", "aggregate"):
        method = fedopt(model())
        calls = {"left": {"loss": 11}.get(stage, 5 if stage != "aggregate" else 1)}

        def interrupted(
            *args: Any, stage: str = stage, method: Any = method, calls: Any = calls
        ) -> Any:
            calls["left"] -= 1
            if calls["left"] < 0:
                raise KeyboardInterrupt
            return getattr(method, stage)(*args)

        folder = tmp_path / stage
        broken = replace(method, **{stage: wraps(getattr(method, stage))(interrupted)})
        with pytest.raises(KeyboardInterrupt):
            fgl.run(broken, graphs(), num_rounds=ROUNDS, checkpoint=folder, clients_at_once=1)
        assert names(folder) == ["round-000001.ckpt"]
        assert same(end(go(folder, clients_at_once=1)), undisturbed)


def test_a_run_that_a_callback_ended_stays_ended(tmp_path: Path) -> None:
    def go(num_rounds: int = 9) -> Any:
        stop = [lambda record, result: record.round == 2]
        return fgl.run(
            fedavg(model()), graphs(), num_rounds=num_rounds, callbacks=stop, checkpoint=tmp_path
        )

    first = go()
    assert len(first.history) == 3
    for rounds in (9, 20):
        with pytest.warns(UserWarning, match=f"3 of {rounds} rounds"):
            assert same(end(go(rounds)), end(first))
    (tmp_path / "stopped").unlink()
    assert len(go().history) == 4 + 5


@pytest.mark.few
@pytest.mark.parametrize("stage", ["loss", "receive", "send", "aggregate", "deploy", "accept"])
def test_a_checkpoint_of_another_function_is_not_taken(stage: str, tmp_path: Path) -> None:
    method = fedavg(model())
    fgl.run(method, graphs(), num_rounds=1, checkpoint=tmp_path)

    def other(*args: Any) -> Any:
        return getattr(method, stage)(*args)

    text = rf"Expected checkpoint .* with {stage}=.*other, but got "
    with pytest.raises(ValueError, match=text):
        fgl.run(replace(method, **{stage: other}), graphs(), num_rounds=2, checkpoint=tmp_path)
    same = replace(method, **{stage: partial(getattr(method, stage))})
    hides = stage in ("loss", "receive")  # the others are plain functions
    text = f"all settings of replace.*{stage} of a builder without"
    with pytest.warns(UserWarning, match=text) if hides else nullcontext():
        assert len(fgl.run(same, graphs(), num_rounds=2, checkpoint=tmp_path).history) == 2
