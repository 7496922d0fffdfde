"""Scaffolds of molecules (rings and their linkers), and partitions by scaffold."""

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from ..checks import imported, install, reject_if


def murcko_scaffolds(smiles: Sequence[str]) -> list[str]:
    """The Bemis-Murcko scaffold of every molecule: all rings and the chains between the rings.

    Args:
        smiles: SMILES strings.

    Returns:
        One SMILES string per molecule: the scaffold without chirality, or ``""`` if the molecule
        has no ring.

    Raises:
        ImportError: if rdkit is not installed.
        ValueError: if rdkit cannot read one of the strings.

    Example:
        >>> murcko_scaffolds([])
        []

    Source: Bemis & Murcko 1996, https://doi.org/10.1021/jm9602928
    """
    if not smiles:
        return []
    for_scaffolds = "to find scaffolds", install("molecules")
    murcko = imported("rdkit.Chem.Scaffolds.MurckoScaffold", *for_scaffolds)
    from rdkit import Chem, rdBase

    scaffolds = []
    with rdBase.BlockLogs():
        for row, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text)
            expected = f"smiles[{row}] to be a molecule"
            reject_if(molecule is None, expected, f"{text[:60]!r}, which rdkit cannot read")
            scaffolds.append(murcko.MurckoScaffoldSmiles(mol=molecule))
    return scaffolds


def scaffold_groups(scaffolds: Sequence[Hashable]) -> list[list[int]]:
    """Group molecules by scaffold, with the largest group first.

    If two groups have equal sizes, the group whose first molecule has the larger id comes first, as
    in DeepChem.

    Args:
        scaffolds: scaffold of each molecule, as a string or another id.

    Example:
        >>> scaffold_groups(["a", "b", "b", "c"])
        [[1, 2], [3], [0]]
    """
    groups: dict[Hashable, list[int]] = {}
    for molecule, scaffold in enumerate(scaffolds):
        groups.setdefault(scaffold, []).append(molecule)
    return sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)


def scaffold_partition(scaffolds: Sequence[Hashable], num_clients: int) -> list[Tensor]:
    """Give all molecules of a scaffold to one client, without randomness.

    The groups of `scaffold_groups` are assigned one after the other, from the largest to the
    smallest. Each group goes to the client that has the fewest molecules at this point. If several
    clients have the fewest molecules, the group goes to the first of these clients.

    Args:
        scaffolds: scaffold of each molecule, as returned by `murcko_scaffolds`, or any other ids.
        num_clients: number of clients.

    Returns:
        One int64 tensor per client, with the ids of the client's molecules in ascending order.
        Every molecule belongs to exactly one client.

    Raises:
        ValueError: if `num_clients` is below 1, or if it is larger than the number of distinct
            scaffolds.

    Example:
        >>> fgl.data.partitions.scaffold_partition(["a", "b", "a", "c"], 2)
        [tensor([0, 2]), tensor([1, 3])]
    """
    groups = scaffold_groups(scaffolds)
    expected = f"num_clients to be in [1, {len(groups)}], the number of scaffolds"
    reject_if(not 1 <= num_clients <= len(groups), expected, num_clients)
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    for group in groups:
        min(parts, key=len).extend(group)
    return [torch.tensor(sorted(part)) for part in parts]
