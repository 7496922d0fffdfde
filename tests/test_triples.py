"""Knowledge graphs: files, clients of some relations, ranks, negatives, and chance on noise."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import SGD, DistMult, case, first, knowledge
from federations import refuses, script
from torch.nn.functional import binary_cross_entropy_with_logits

import fgl
from fgl.data import load_triples
from fgl.data.partitions import relation_partition
from fgl.tasks import pair_task, ranking
from fgl.tasks.ranking import _is_true

fede: Any = script("examples/fede.py").fede
one_by_one = partial(fgl.run, clients_at_once=1)


def net(width: int = 6) -> DistMult:
    return first(partial(DistMult, 30, 8, width), torch.float32)


def task_of(clients: list[fgl.Graph], model: Any = None, train: Any = SGD, **how: Any) -> Any:
    how = {"negatives": 2, "ranking": ranking(), **how}
    return pair_task(clients, net() if model is None else model, train, **how)


def by_loops(model: Any, graph: fgl.Graph, mask: Any, filtered: bool, both: bool) -> list[float]:
    """Ranks, question by question and node by node."""
    pairs: Any = graph.edge_label_index
    triples = [*zip(*pairs.tolist(), graph.edge_label_type.tolist(), strict=True)]  # type: ignore[union-attr]
    true = {t for t, y in zip(triples, graph.y.tolist(), strict=True) if y == 1}  # type: ignore[union-attr]
    ranks = []
    for which in mask.nonzero().flatten().tolist():
        head, tail, kind = triples[which]
        for end in (1, 0)[: 1 + both]:
            asked = [(head, e, kind) if end else (e, tail, kind) for e in range(graph.num_nodes)]
            h, t, r = map(torch.tensor, zip(*asked, strict=True))
            score = model(
                graph.x, graph.adj, edge_label_index=torch.stack([h, t]), edge_label_type=r
            )
            own = score[tail if end else head]
            rank = 1.0
            for other, value in zip(asked, score, strict=True):
                if other == triples[which] or (filtered and other in true):
                    continue
                rank += 1.0 if value > own else 0.5 if value == own else 0.0
            ranks.append(rank)
    return ranks


def test_a_constant_model_has_the_mean_rank_and_a_diverged_one_none() -> None:
    graph, model = knowledge(), net()
    for value, wanted in ((0.0, 2 / 31), (float("nan"), float("nan"))):
        params = {name: torch.full_like(p, value) for name, p in model.state_dict().items()}
        metrics = ranking(filtered=False)(model)(params, graph)
        assert metrics["test_mrr"] == pytest.approx(wanted, nan_ok=True)
        assert metrics["test_hits@10"] == pytest.approx(0 * wanted, nan_ok=True)


def test_negatives_have_another_end_and_never_train() -> None:
    graph = knowledge()
    task = task_of([graph], negatives=6)
    steps = [told["negatives"] for _, told in task.fedavg.train.batches(graph, {})]
    assert not torch.equal(steps[0].values, steps[1].values)
    pairs, kind, mask = graph.edge_label_index, graph.edge_label_type, graph.train_mask
    triples = torch.cat([pairs, kind[None]]).T  # type: ignore[list-item,index]
    trains = {tuple(t) for t in triples[mask].tolist()}
    held_out = {tuple(t) for t in triples[~mask].tolist()}  # type: ignore[operator]
    rows = [tuple(t) for step in steps for t in step.values[step.mask].tolist()]
    assert not trains & {*rows}
    assert held_out & {*rows}
    heads = {(t, k) for _, t, k in trains}
    tails = {(h, k) for h, _, k in trains}
    assert all((h, k) in tails or (t, k) in heads for h, t, k in rows)
    assert len(rows) == 2 * 2 * 6 * len(trains)
    assert {h for h, _, _ in rows} == {t for _, t, _ in rows} == set(range(30))


def write(folder: Path, **files: str) -> Path:
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text(files.get(name, f"a\tr\t{name}\n"), encoding="utf-8")
    return folder


def test_files_of_triples_share_their_numbers(tmp_path: Path) -> None:
    text = "b\tknows\ta\r\n\na\tlikes\tnew york\nb\tknows\ta\n"
    with pytest.warns(UserWarning, match="1 triples twice"):
        graph, entities, relations = load_triples(write(tmp_path, train=text))
    assert (entities, relations) == (
        ["a", "b", "new york", "test", "valid"],
        ["knows", "likes", "r"],
    )
    assert graph.edge_index.tolist() == [[1, 0], [0, 2]]
    assert graph.edge_type.tolist() == [0, 1]  # type: ignore[union-attr]
    assert graph.edge_label_index.tolist() == [[1, 0, 0, 0], [0, 2, 4, 3]]  # type: ignore[union-attr]
    assert graph.edge_label_type.tolist() == [0, 1, 2, 2]  # type: ignore[union-attr]
    assert graph.test_mask.tolist() == [False, False, False, True]  # type: ignore[union-attr]
    assert graph.x.flatten().tolist() == [0, 1, 2, 3, 4]  # type: ignore[union-attr]


def test_files_without_triples_are_refused(tmp_path: Path) -> None:
    for text, said in (
        ("a\tr\n", "line 1"),
        ("a\tr\tb\na r c\n", "line 2"),
        ("\n", "none"),
        ("Head\tRelation\tTail\n", "header"),
        ("head_id\ttail_id\trelation_id\n", "header"),
    ):
        with pytest.raises(ValueError, match=said):
            load_triples(write(tmp_path, valid=text))
    with pytest.warns(UserWarning, match="1 are in two"):
        load_triples(write(tmp_path, test="a\tr\ttrain\n"))
    with pytest.warns(UserWarning, match="second names are heads"):
        load_triples(write(tmp_path, train="a\tb\tr\n", valid="b\tc\tr\n", test="c\ta\tq\n"))
    (tmp_path / "valid.txt").unlink()
    refuses("valid", lambda: load_triples(tmp_path), OSError)


def test_every_triple_is_at_one_client_that_has_its_relation() -> None:
    graph = knowledge()
    clients = relation_partition(graph, 3, seed=5)
    kinds = [set(own.edge_label_type.tolist()) for own in clients]  # type: ignore[union-attr]
    assert sorted(map(len, kinds)) == [2, 3, 3]
    assert set.union(*kinds) == set(range(8))
    rows = []
    for own in clients:
        assert own.x.flatten().long().equal(own.node_id)  # type: ignore[union-attr,arg-type]
        used = torch.cat([own.edge_index, own.edge_label_index], 1).unique()  # type: ignore[list-item]
        assert used.equal(torch.arange(own.num_nodes))
        ends = own.node_id[own.edge_label_index]  # type: ignore[index]
        parts = [*ends, own.edge_label_type, own.train_mask.long(), own.test_mask.long()]  # type: ignore[union-attr]
        rows += torch.stack(parts).T.tolist()  # type: ignore[arg-type]
        assert own.num_edges == own.num_train
    parts = [*graph.edge_label_index, graph.edge_label_type, graph.train_mask.long()]  # type: ignore[misc,union-attr]
    assert sorted(rows) == sorted(torch.stack([*parts, graph.test_mask.long()]).T.tolist())  # type: ignore[union-attr]
    assert relation_partition(graph, 3, seed=6)[0].num_edges != clients[0].num_edges


def test_unusable_arguments_are_refused() -> None:
    graph = knowledge()
    own = relation_partition(graph, 2)
    for call, said in [
        (lambda: relation_partition(graph, 9), "at most 8"),
        (lambda: relation_partition(graph.replace(edge_type=None), 2), "edge_type"),
        (lambda: relation_partition(graph.replace(edge_label_type=None), 2), "edge_label_type"),
        (lambda: task_of(own, negatives=False), "negatives"),
        (lambda: task_of(own, target=fgl.targets.REGRESSION), "ANSWERS"),
        (lambda: task_of(own, ranking=None), "negatives"),
        (lambda: task_of([g.replace(y=g.y + 1) for g in own]), "y to be"),  # type: ignore[operator]
        (lambda: ranking(ks=[]), "ks"),
        (lambda: ranking(ks=[0]), "ks"),
    ]:
        with pytest.raises(ValueError, match=said):
            call()


def test_edges_of_another_relation_between_the_same_ends_are_no_leak() -> None:
    graph = knowledge()
    test = graph.test_mask
    edges = torch.cat([graph.edge_index, graph.edge_label_index[:, test]], 1)  # type: ignore[index]
    kind = graph.edge_label_type[test]  # type: ignore[index]
    for shift in (1, 0):
        types = torch.cat([graph.edge_type, (kind + shift) % 8])  # type: ignore[list-item]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            task_of([graph.replace(edge_index=edges, edge_type=types)])
        assert any("are messages" in str(w.message) for w in caught) == (shift == 0)


def test_the_best_of_both_is_shared_by_name() -> None:
    """FedE's entities and FedR's relations travel; the rest stays different."""
    _, task = case("fedavg", "triples")
    for part, other in (("ent", "rel"), ("rel", "ent")):
        method = fgl.methods.fedper(task.fedavg, shared=[part])
        result = one_by_one(method, task, num_rounds=2)
        assert list(result.outbox[0]["model"]) == [f"{part}.weight"]
        one, two = (result.model_of(k).state_dict()[f"{other}.weight"] for k in (0, 1))
        assert not torch.equal(one, two)


def at_hospitals() -> Any:
    """Three clients, none of which has all entities."""
    return task_of(relation_partition(knowledge(num=60), 3), train=SGD)


def test_fede_is_its_loops_and_only_rows_of_own_entities_travel() -> None:
    task = at_hospitals()
    drawn: dict[Any, list[Any]] = {tuple(own.x.flatten().tolist()): [] for own in task.clients}
    assert len(drawn) == 3 and all(len(has) < 30 for has in drawn)

    def recorded(graph: fgl.Graph, context: Any) -> Any:
        for own, told in task.fedavg.train.batches(graph, context):
            drawn[tuple(graph.x.flatten().tolist())].append(told["negatives"].values.clone())
            yield own, told

    method = replace(task.fedavg, train=replace(task.fedavg.train, batches=recorded))
    result = one_by_one(fede(method), task, num_rounds=3)
    mine = [net() for _ in task.clients]
    table = net().ent.weight.detach()
    for turn in range(3):
        for own, model in zip(task.clients, mine, strict=True):
            has = own.x.flatten().long()
            with torch.no_grad():
                model.ent.weight[has] = table[has]
            optimizer = SGD.optimizer(list(model.parameters()))
            for others in drawn[tuple(has.tolist())][2 * turn : 2 * turn + 2]:
                train = own.train_mask
                asked = torch.cat([own.edge_label_index[:, train], others.T[:2]], 1)
                kinds = torch.cat([own.edge_label_type[train], others.T[2]])
                output = model(own.x, own.adj, edge_label_index=asked, edge_label_type=kinds)
                truth = (torch.arange(len(kinds)) < train.sum()).float()
                optimizer.zero_grad()
                binary_cross_entropy_with_logits(output, truth).backward()
                optimizer.step()
        rows: dict[int, list[Any]] = {}
        for own, model in zip(task.clients, mine, strict=True):
            for entity in own.x.flatten().long().tolist():
                rows.setdefault(entity, []).append(model.ent.weight[entity].detach())
        means = {entity: torch.stack(each).mean(0) for entity, each in rows.items()}
        table = torch.stack([means.get(entity, row) for entity, row in enumerate(table)])
    torch.testing.assert_close(result.server_state["model"]["ent.weight"], table)
    for client, (own, model) in enumerate(zip(task.clients, mine, strict=True)):
        has = own.x.flatten().long()
        assert list(result.outbox[client]) == ["rows"]
        torch.testing.assert_close(result.outbox[client]["rows"], table[has])
        kept = result.model_of(client).state_dict()["rel.weight"]
        torch.testing.assert_close(kept, model.rel.weight.detach())
    count, row = sum(own.num_nodes for own in task.clients), 6 * 4
    whole = 3 * 4 * sum(tensor.numel() for tensor in net().state_dict().values())
    assert [own.bytes_up for own in result.history] == [count * (row + 8) + 3 * 8] * 3
    assert [own.bytes_down for own in result.history] == [whole, count * row, count * row]


def test_rows_of_the_absent_and_of_nobody_stay() -> None:
    task, start = at_hospitals(), net().ent.weight.detach()
    method = fede(task.fedavg)
    inbox = {
        k: {"ids": torch.tensor(ids), "rows": torch.full((len(ids), 6), k + 1.0),
            "num_examples": torch.tensor(5 * (k < 2))}
        for k, ids in enumerate([[0, 3], [3, 7], [9]])
    }  # fmt: skip
    outbox, state = method.aggregate(
        fgl.federation.Inbox(inbox, 5), {"model": {"ent.weight": start}}
    )
    table = state["model"]["ent.weight"]
    assert [table[row, 0].item() for row in (0, 3, 7)] == [1.0, 1.5, 2.0]
    same = torch.tensor([row not in (0, 3, 7) for row in range(30)])
    assert torch.equal(table[same], start[same])  # of nobody, or of a client without an example
    assert outbox[2]["rows"].equal(start[[9]]) and outbox[4]["model"]["ent.weight"].equal(table)
    again, _ = method.aggregate(fgl.federation.Inbox({}, 5), state)
    assert again[0]["rows"].equal(table[[0, 3]])  # known from an earlier round
    for client in (0, 1, 2):
        method.accept(inbox[client], client, state)
    one, rows = torch.tensor([3, 4]), torch.zeros(2, 6)
    for ids, sent in (
        (torch.tensor([3, 3]), rows), (torch.tensor([3, 30]), rows), (one - 4, rows),
        (one.int(), rows), (one[None], rows), (one, rows[:1]), (one, rows.double()),
        (one, rows[:, :5]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="Expected (ids|a row)"):
            method.accept({"ids": ids, "rows": sent}, 0, state)
    for ids in ([0], [3, 0], [0, 3, 7]):  # client 0 had rows 0 and 3
        sent = {"ids": torch.tensor(ids), "rows": torch.zeros(len(ids), 6)}
        with pytest.raises(ValueError, match="Expected ids"):
            method.accept(sent, 0, state)
    for wrap in (fgl.methods.fedopt, fgl.methods.scaffold):
        with pytest.raises(ValueError, match="Expected fede to be given"):
            fede(wrap(task.fedavg))


def test_all_data_answers_the_same_questions() -> None:
    graph = knowledge()
    task = replace(task_of(relation_partition(graph, 3)), whole=graph)
    central = fgl.tasks.centralized(task)
    result = one_by_one(central.fedavg, central, num_rounds=1, each=True)
    model = result.model
    wanted = []
    for own in task.clients:
        ranks = torch.tensor(by_loops(model, own, own.test_mask & _is_true(own), True, True))
        wanted.append(float((1 / ranks).mean()))
    assert [result.history[0].metrics[f"test_mrr/{k}"] for k in range(3)] == pytest.approx(wanted)


def test_a_mark_before_the_first_name_is_no_part_of_it(tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_bytes(f"\ufeffa\tr\t{name}\u2028\u00e9\r\n".encode())
    assert load_triples(tmp_path)[1] == [
        "a",
        *(f"{n}\u2028\u00e9" for n in ("test", "train", "valid")),
    ]


@pytest.mark.parametrize("at_once", [1, "all"])
def test_a_client_without_a_triple_changes_nothing(at_once: Any) -> None:
    first, second, other = relation_partition(knowledge(), 3, seed=5)
    none, no_pair = other.edge_index[:, :0], other.y[:0]  # type: ignore[index]
    masks = dict.fromkeys(("train_mask", "val_mask", "test_mask"), no_pair.bool())
    edges = {"edge_index": none, "edge_type": none[0]}
    pairs = {"edge_label_index": none, "edge_label_type": none[0], "y": no_pair}
    without = other.replace(**edges, **pairs, **masks)
    ends = []
    for clients in ([first, second], [first, second, without]):
        task = task_of(clients)
        result = fgl.run(task.fedavg, task, num_rounds=2, clients_at_once=at_once)
        ends.append(result.outbox[0]["model"])
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value)
