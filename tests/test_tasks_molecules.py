"""Molecules of companies: who holds what, what is tested, and what is learned of it."""

from typing import Any

import pytest
import torch
from federations import refuses

import fgl
from fgl.tasks import Molecules


def small(**values: Any) -> Molecules:
    return Molecules(**{"clients": 4, "hidden": 8, "layers": 2, **values})


def scaffolds_of(client: fgl.Graph, role: str = "") -> set[tuple[float, ...]]:
    """The rings of a client's made-up molecules: the atoms in them."""
    chosen = range(client.num_graphs)
    if role:
        mask: Any = getattr(client, role)
        chosen = mask.nonzero().flatten().tolist()
    x: Any = client.x
    owner: Any = client.batch
    return {tuple(x[(owner == k) & (x[:, 8] == 1), 0].tolist()) for k in chosen}


@pytest.mark.parametrize("split", ["random", "scaffold"])
@pytest.mark.parametrize("partition", ["random", "scaffold"])
def test_every_molecule_has_one_client_and_one_role(partition: Any, split: Any) -> None:
    task = small(partition=partition, split=split).load(seed=1)
    whole: Any = task.whole
    assert sum(own.num_graphs for own in task.clients) == whole.num_graphs == 120
    numbers = torch.cat([own.y for own in task.clients])  # type: ignore[misc]
    assert torch.equal(numbers.sort().values, whole.y.sort().values)
    for own in [*task.clients, whole]:
        roles = sum(mask.int() for mask in (own.train_mask, own.val_mask, own.test_mask))
        assert bool((roles == 1).all()) and bool(own.test_mask.any())
        assert 0.5 * own.num_graphs < own.num_train < own.num_graphs
    role = "train_mask" if split == "scaffold" else ""
    owners = [scaffolds_of(own, role) for own in task.clients]
    apart = sum(map(len, owners)) == len(set.union(*owners))
    assert apart == (partition == "scaffold")
    trained = scaffolds_of(whole, "train_mask")
    assert (split == "scaffold") == (not trained & scaffolds_of(whole, "test_mask"))


def test_what_the_columns_are_must_be_said_of_an_unknown_dataset() -> None:
    expected = "Expected dataset to be one of synthetic, esol.*but got lipo and dataset"
    refuses(expected, small(dataset="lipo").load)


@pytest.mark.filterwarnings("ignore:.* have no (val|test)_auc")  # few answers, some of one kind
def test_answers_of_molecules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of Tox21: several answers, of which some are unknown."""
    graphs, y, scaffolds = fgl.data.small_molecules()
    answers = torch.stack([(y > y.median()).float(), (y > 0).float()], dim=1)
    answers[::5, 1] = torch.nan
    found = fgl.data.readers.molecules.Molecules(graphs, answers, scaffolds)
    monkeypatch.setattr(fgl.data, "load_molecules", lambda name: found)
    monkeypatch.setattr(fgl.data, "murcko_scaffolds", lambda smiles: smiles)
    for split in ("random", "scaffold"):
        task = small(dataset="tox21", split=split, clients=3).load()
        assert task.select == "val_auc" and task.fedavg.model.readout.out_features == 2
        metrics = fgl.run(task.fedavg, task, num_rounds=1).history[0].metrics
        assert {"test_auc", "pooled_test_auc", "pooled_test_ap"} <= set(metrics)


def test_more_companies_than_scaffolds() -> None:
    refuses(r"num_clients to be in \[1, 19\], the number of scaffold", small(clients=30).load)
