"""Every argument of every public builder changes what a run computes, or is said not to.

An argument that is lost on its way to the function that uses it is an error without a sign: the
builder takes it, a run's identity holds it, and the results are those of the default.
"""

import math
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from conformance import known
from federations import end, identified, same
from scipy.sparse import csr_matrix

import fgl
from fgl import Method, methods, transforms
from fgl.aggregate.robust import median, multi_krum
from fgl.tasks import Task


class Given(NamedTuple):
    """Arguments of a builder: those of the plain call, and another value of each."""

    plain: dict[str, Any]
    other: dict[str, Any]
    task: str = "nodes"
    rounds: int = 3


def far(one: Any, other: Any) -> Any:
    return fgl.losses.proximal(one, other) ** 2


def rising(params: Any, own: fgl.Graph) -> Any:
    return params["convs.0.bias"].abs().sum()


def each_its_own(inbox: Any, before: Any) -> Any:
    return torch.eye(len(before))[:, : len(inbox)], before


def probes(task: Task, blocks: int) -> fgl.Graph:
    how: Any = {"blocks": blocks, "generator": torch.Generator().manual_seed(0)}
    return methods.proxy_graph(task.clients[0], num_nodes=10, **how)


def network(task: Task, noise: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return methods.node_generator(task.clients[0], noise=noise, widths=(4, 4))


NODES = known("nodes", 0.0, torch.float32)
SPLIT: dict[str, Any] = {"eps1": 1e6, "eps2": 0.0, "first_round": 0}
CONDENSED = {"condense_width": 4, "fit_steps": 3}
GIVEN: dict[str, Given] = {
    "adaptive_fedprox": Given({"fit": lambda params, own: torch.tensor(1.0)}, {"fit": rising,
        "mu": 2.0, "distance": far}),
    "ditto": Given({}, {"penalty": 3.0}),
    "fedamp": Given({}, {"sigma": 0.1, "server_lr": 0.5, "penalty": 3.0}),
    "fedaux": Given({}, {"scale": 1.0}, "aux"), "feddc": Given({}, {"penalty": 0.5}),
    "feddyn": Given({}, {"penalty": 0.5}),
    "fedhgn": Given({}, {"align": 0.1, "draw": False}, "types"),
    "fedopt": Given({"rule": "adam", "server_lr": 0.1}, {**{"rule": "yogi", "server_lr": 0.2,
        "momentum": 0.5, "beta2": 0.5, "tau": 0.1}, **{"weight_decay": 0.1, "bias_correction": True,
        "anew": True}},),
    "fedper": Given({"shared": ["convs.0"]}, {"shared": ["convs.1"]}),
    "fedproto": Given({}, {"weight": 5.0, "draw": False}),
    "fedprox": Given({"mu": 0.1}, {"mu": 1.0, "distance": far}),
    "fedpub": Given({"probes": probes(NODES, 1)}, {**{"probes": probes(NODES, 3), "sparsity": 0.5,
        "proximity": 0.5, "scale": 1.0}, **{"penalties": False, "of": "answers", "masks": "all"}},),
    "fedselect": Given({"every": 1, "top": 0.5}, {"top": 0.1, "cap": 0.3, "every": 2,
        "passes": (True, True)}),
    "fedspa": Given({}, {"feature_share": 0.8}, "spa"),
    "fedstar": Given({}, {"shared": ("structure_pre",), "draw": False}, "star nodes"),
    "fedssp": Given({}, {"weight": 1.0, "draw": False}, "spectral graphs"),
    "fedtgp": Given({"server_epochs": 2, "server_batch": 2}, {"weight": 1.0, "margin": 0.1,
        "server_lr": 0.5, "server_epochs": 4, "server_batch": 9},),
    "fggp": Given({"every": 2}, {"neighbours": 1, "every": 3, "temperature": 0.1}),
    "gcfl": Given(SPLIT, {"eps1": 1e-9, "eps2": 1e9, "first_round": 9}),
    "gcfl_plus": Given({**SPLIT, "seq_length": 2}, {"eps1": 1e-9, "eps2": 1e9, "first_round": 9,
        "seq_length": 1, "sequence": "gradients"},),
    "graphfl": Given({"adapt_steps": 2}, {"adapt_steps": 1, "adapt_lr": 0.1, "query": "all",
        "second_order": True, "equal": False},),
    "heurfedamp": Given({}, {"own": 0.6, "scale": 1.0, "penalty": 3.0}),
    "mix_updates": Given({"network": methods.uniform}, {"network": each_its_own,
        "self_weight": 0.5}),
    "moon": Given({}, {"contrast": 5.0, "temperature": 0.1}),
    "own_models": Given({}, {"draw": True}),
    "pfedgraph": Given({}, {"prior": 0.1, "attraction": 1.0}),
    "retrained": Given({"client": 1}, {"client": 2}),
    "s2fgl": Given({"frequencies": 2, "books": 2, "neighbours": 1}, {**{"knowledge": 0.5,
        "alignment": 9.0, "frequencies": 3, "neighbours": 2, "books": 1}, **{"book_share": 0.3,
        "restart": 0.5}},),
    "scaffold": Given({}, {"server_lr": 2.0}),
    "unlearned": Given({"client": 2, "at": 1, "radius": 1e-3}, {"client": 1, "at": 2,
        "radius": 1e-4, "far": 1e-9, "max_norm": 1e-3},),
    "fedgta": Given({}, {**{"propagations": 1, "neighbour_share": 0.0, "temperature": 1.0,
        "moments": "mean"}, **{"num_moments": 1, "threshold": 0.999999}},),
    "fedgm": Given({**CONDENSED, "condense_steps": 4, "adjacency_steps": 1, "feature_steps": 1},
        {**{"reduction": 0.5, "condense_steps": 6, "adjacency_steps": 2, "feature_steps": 2},
        **{"condense_lr": 0.1, "condense_width": 5, "fit_steps": 5, "fit_lr": 0.1},
        **{"fit_decay": 0.5}}, rounds=1,),
    "opfgl": Given({**CONDENSED, "sure": 0.6, "min_degree": 2, "condense_steps": 12},
        {**{"propagations": 2, "expand": 0, "sure": 0.3, "min_degree": 4, "label_steps": 1},
        **{"label_share": 0.3, "nodes_per_class": 2, "condense_steps": 14, "feature_lr": 0.1},
        **{"edge_lr": 0.1, "condense_width": 5, "alignment": 0.1, "smoothness": 2.0},
        **{"fit_steps": 5, "fit_lr": 0.1, "distil": 0.9, "distil_least": 0.1},
        **{"distil_most": 0.05}}, rounds=2,),
    "fedtad": Given({"generator": network(NODES, 4), "num_nodes": 12, "neighbours": 3, "epochs": 2},
        {**{"generator": network(NODES, 5), "num_nodes": 9, "neighbours": 2, "epochs": 3},
        **{"generator_steps": 2, "distil_steps": 2, "generator_lr": 0.1, "distil_lr": 0.1},
        **{"distil_decay": 0.5, "fit": 0.1, "diversity": 9.0}}, rounds=1,),
    "feddep": Given({"encoder_epochs": 2, "gen_epochs": 2}, {**{"num_prototypes": 3,
        "encoder_epochs": 3, "gen_local_epochs": 2, "gen_epochs": 3}, **{"gen_hide": 0.8,
        "count_weight": 9.0, "embedding_weight": 9.0, "label_weight": 9.0},
        **{"targets": "nearest"}}, "deep", rounds=2,),
    "fedsage_plus": Given({}, {"weight": 5.0}, "generators"),
    "attacked": Given({"attackers": [1], "attack": transforms.scaled_updates()}, {"attackers": [2],
        "attack": transforms.scaled_updates(3.0)},),
    "clipped": Given({"length": 0.1}, {"length": 0.2}),
    "quantised": Given({}, {"bits": 2, "bucket": 7}),
    "sparsified": Given({"share": 0.3}, {"share": 0.6, "feedback": False}),
    "rounded_downloads": Given({}, {"dtype": "float16"}),
    "robust": Given({"rule": median}, {"rule": partial(multi_krum, bad=0), "bucket": 2}),
}  # fmt: skip


def made_with(name: str, how: dict[str, Any]) -> Method:
    build = getattr(methods, name, None) or getattr(transforms, name)
    method: Method = build(known(GIVEN[name].task, 0.0, torch.float32).fedavg, **how)
    return method


def ending(name: str, how: dict[str, Any]) -> Any:
    clients = known(GIVEN[name].task, 0.0, torch.float32).clients[:3]
    absent: Any = {"dropouts": lambda index, client: (index, client) == (1, 0)}
    rounds = GIVEN[name].rounds
    method = made_with(name, how)
    return end(fgl.run(method, clients, num_rounds=rounds, clients_at_once=1, **absent))


@pytest.mark.parametrize("name", GIVEN)
def test_each_argument_changes_the_run(name: str) -> None:
    """And a checkpoint knows a run of other arguments from it."""
    plain, other, *_ = GIVEN[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, known_as = ending(name, plain), identified(made_with(name, plain))
        assert same(ending(name, plain), before)
        assert identified(made_with(name, plain)) == known_as
        for key, value in other.items():
            how = {**plain, key: value}
            assert not same(ending(name, how), before), key
            assert identified(made_with(name, how)) != known_as, key


BOUNDS = {  # "builder argument argument; builder ..." by what is refused and what is taken
    "at least 0": """
        adaptive_fedprox mu; ditto penalty; fedamp penalty; fedaux scale; feddc penalty; feddyn
        penalty; fedhgn align; fedopt server_lr momentum tau weight_decay; fedproto weight;
        fedprox mu; fedpub sparsity proximity scale; fedssp weight; fedtgp weight margin; gcfl
        eps1 eps2; gcfl_plus eps1 eps2; graphfl adapt_lr; heurfedamp scale penalty; moon contrast;
        s2fgl knowledge alignment; scaffold server_lr; unlearned far; fedgm condense_lr fit_lr
        fit_decay; opfgl feature_lr edge_lr alignment smoothness fit_lr distil distil_most; fedtad
        generator_lr distil_lr distil_decay fit diversity; feddep count_weight embedding_weight
        label_weight; fedsage_plus weight
    """,
    "above 0": """
        fedamp sigma server_lr; fedtgp server_lr; fggp temperature; moon temperature;
        pfedgraph prior; unlearned radius max_norm; fedgta temperature; clipped
        length
    """,
    "shares": """
        fedselect top cap; heurfedamp own; mix_updates self_weight; s2fgl restart; fedgta
        neighbour_share; fedgm reduction; opfgl sure label_share; feddep gen_hide
    """,
    "counts from 1": """
        fedselect every; fedtgp server_epochs server_batch; fggp neighbours every; gcfl_plus
        seq_length; s2fgl frequencies neighbours books; unlearned at; fedgta propagations
        num_moments; fedgm feature_steps condense_width; opfgl nodes_per_class condense_width;
        fedtad neighbours; feddep num_prototypes; quantised bucket; robust bucket
    """,
    "shares above 0": """
        fedspa feature_share; s2fgl book_share; sparsified share
    """,
    "counts from 0": """
        gcfl first_round seq_length; gcfl_plus first_round; graphfl adapt_steps; retrained client;
        unlearned client; fedgm condense_steps adjacency_steps fit_steps; opfgl propagations
        expand min_degree label_steps condense_steps fit_steps; fedtad epochs generator_steps
        distil_steps; feddep encoder_epochs gen_local_epochs gen_epochs
    """,
}
BOUNDS["choices"] = """
    fedopt rule; fedpub masks of; graphfl query; fedgta moments;
    gcfl_plus sequence; feddep targets; rounded_downloads dtype
"""
REFUSED: dict[str, tuple[Any, ...]] = {
    "at least 0": (-0.1, math.nan, math.inf),
    "above 0": (0.0, -0.1, math.nan, math.inf),
    "shares": (-0.1, 1.1, math.nan),
    "shares above 0": (0.0, 1.1, math.nan),
    "counts from 0": (-1, 1.5),
    "counts from 1": (0, -1, 1.5),
    "choices": ("other", 3),
}
TAKEN: dict[str, tuple[Any, ...]] = {
    **{"at least 0": (0.0,), "above 0": (1e-3,), "shares": (0.0, 1.0), "shares above 0": (1.0,)},
    **{"counts from 0": (0,), "counts from 1": (1,), "choices": ()},
}
OTHER_BOUNDS: list[tuple[str, str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("fedopt", "beta2", (1.0, -0.1, math.nan), (0.0, 0.99)),
    ("pfedgraph", "attraction", (math.nan, math.inf), (-1.0, 0.0)),
    ("fedgta", "threshold", (1.1, math.nan), (-1.0, 1.0)),
    ("quantised", "bits", (1, 17, 2.5), (2,)),
    ("fedselect", "passes", ((),), ()),
    ("opfgl", "distil_least", (-0.1,), (0.0, 0.15)),
]


def built(name: str, **changed: Any) -> None:
    made_with(name, {**GIVEN[name].plain, **changed})


def bounded(kind: str) -> list[tuple[str, str, tuple[Any, ...], tuple[Any, ...]]]:
    rows = [row.split() for row in BOUNDS[kind].split(";")]
    return [(name, key, REFUSED[kind], TAKEN[kind]) for name, *keys in rows for key in keys]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [*BOUNDS, "other"])
def test_arguments_out_of_range_are_refused_by_name(kind: str) -> None:
    for name, key, refused, taken in OTHER_BOUNDS if kind == "other" else bounded(kind):
        for value in refused:
            with pytest.raises((TypeError, ValueError), match=key):
                built(name, **{key: value})
                raise AssertionError(f"{name}({key}={value})")
        for value in taken:
            built(name, **{key: value})


AVERAGES = """
    ditto fedamp fedaux feddc feddyn fedproto fedpub fedspa fedssp fedtgp fggp heurfedamp
    mix_updates pfedgraph s2fgl unlearned fedgta fedgm opfgl fedtad feddep robust
"""
ALIKE = """
    ditto fedaux fedpub fedselect fedspa fedssp fggp graphfl moon s2fgl unlearned fedgm opfgl
    fedtad feddep fedsage_plus
"""


@pytest.mark.parametrize("name", GIVEN)
def test_builders_that_need_one_mean_or_one_architecture_say_so(name: str) -> None:
    plain, _, task, _ = GIVEN[name]
    build = getattr(methods, name, None) or getattr(transforms, name)
    ring = methods.ring(known(task, 0.0, torch.float32).fedavg)
    differ = known("clients that differ", 0.0, torch.float32).fedavg
    for names, inner, words in (
        (AVERAGES, ring, "server"),
        (ALIKE, differ, "given a method whose clients have one architecture"),
    ):
        if name in names.split():
            with pytest.raises(ValueError, match=words):
                build(inner, **plain)
        elif inner is ring:
            build(inner, **plain)


SGD = fgl.tasks.Local("sgd", lr=0.1, steps=2)
ADAM = fgl.tasks.Local("adam", lr=0.1, steps=2)
SKEWED, LOST = fgl.data.partitions.Skew(skew_by="degrees"), fgl.data.Damage(missing_edges=0.5)
OF_NODES: dict[str, Any] = {"clients": 4, "hidden": 5, "dropout": 0.1, "damage": LOST}
OF_NODES |= {"local": replace(SGD, lr=0.2), "skew": SKEWED}
OF_GRAPHS: dict[str, Any] = {**OF_NODES, "batch_size": 3}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Nodes": ({"dropout": 0.5}, {**OF_NODES, "partition": "random", "model": "sage",
        "split": "class_capped"},),
    "SampledNodes": ({"dropout": 0.5, "fanouts": (3, 2), "batch_size": 10}, {**OF_NODES,
        **{"partition": "random", "model": "gcn", "split": "class_capped", "fanouts": (2, 2)},
        **{"batch_size": 5}},),
    "SubgraphNodes": ({"dropout": 0.5, "partition": "louvain"}, {**OF_NODES,
        **{"partition": "random", "train": 0.4, "model": "sage"}, **{"keep_optimizer": False}},),
    "OverlappingNodes": ({"clients": 2, "dropout": 0.5, "proportions": ("0.03", "0.05")},
        {**{"proportions": ("0.03", "0.06"), "overlap": 0.01, "per_class": 30, "hidden": 5},
        **{"dropout": 0.1, "damage": LOST, "local": replace(SGD, lr=0.2), "l2": 0.1}},),
    "OwnNodes": ({"latent": 3}, {**OF_NODES, "partition": "random", "features": "normalized",
        "latent": 4, "kl": 5.0},),
    "Links": ({"latent": 3}, {**OF_NODES, **{"partition": "random", "features": "normalized",
        "latent": 4, "kl": 5.0}, **{"recon": "dense", "partition_after_split": False}},),
    "EgoNodes": ({"fanouts": (2, 2), "batch_size": 8, "num_test": 8}, {**{"clients": 2,
        "share": 0.4, "major_rate": 0.5, "num_test": 6, "fanouts": (3, 2)}, **{"batch_size": 16,
        "hidden": 5, "dropout": 0.5, "linear": True, "damage": LOST}, **{"local": replace(ADAM,
        steps=1)}},),
    "Graphs": ({"clients": 2, "batch_size": 60, "partition": "dirichlet"}, {**OF_GRAPHS,
        **{"partition": "authors", "alpha": 0.5, "fold": 1, "folds": 4, "model": "star"}},),
    "Molecules": ({"clients": 2, "batch_size": 60},
        {**{key: OF_GRAPHS[key] for key in OF_GRAPHS if key != "skew"}, **{"partition": "random",
        "split": "scaffold", "model": "gin", "layers": 2}},),
    "Pairs": ({}, {**{key: OF_NODES[key] for key in OF_NODES if key != "dropout"},
        **{"partition": "random", "asked": "links", "order": "random"}},),
    "TypedNodes": ({"dropout": 0.5}, {**OF_NODES, "partition": "random", "share_conferences": False,
        "bases": 2},),
}  # fmt: skip


BUILT_IN = ("Graphs", "Molecules", "OverlappingNodes", "Pairs", "TypedNodes")


def loaded(name: str, how: dict[str, Any]) -> Any:
    """What a setting makes: each client's data, a round of its FedAvg and the round's scores."""
    local = {"local": ADAM if name == "EgoNodes" else SGD}
    own = {} if name in BUILT_IN else {"dataset": "tiny"}
    setting = getattr(fgl.tasks, name)(**{"clients": 3, "hidden": 4, **local, **own, **how})
    task = setting.load(seed=0)
    data = [(each.edge_index, dense(each.x), each.train_mask) for each in task.clients]
    rounds = 2 if name == "SubgraphNodes" else 1  # which keeps its optimizer
    return [end(fgl.run(task.fedavg, task, num_rounds=rounds)), data]


def dense(x: Any) -> Any:
    return x.to_dense() if isinstance(x, fgl.SparseMatrix) else x


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset of 150 nodes, read as a file of one's own."""
    graph = fgl.data.csbm(num_nodes=150, num_features=12, words_per_set=3, seed=1)
    arrays = {"labels": graph.y, "attr_matrix": dense(graph.x)}
    matrix = csr_matrix(graph.adj.to_dense().numpy())
    arrays |= {f"adj_{key}": getattr(matrix, key) for key in ("data", "indices", "indptr", "shape")}
    (tmp_path / "tiny").mkdir()
    np.savez(tmp_path / "tiny" / "tiny.npz", **arrays)
    monkeypatch.setenv("FGL_DATA", str(tmp_path))


@pytest.mark.parametrize("name", SETTINGS)
def test_each_field_changes_the_task(name: str, tiny: None) -> None:
    plain, other = SETTINGS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = loaded(name, plain)
        unchanged = [key for key in other if same(loaded(name, {**plain, key: other[key]}), before)]
    assert unchanged == []
