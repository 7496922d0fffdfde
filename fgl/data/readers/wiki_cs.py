"""Reader of Wiki-CS (Mernyei & Cangea 2020), one JSON file with twenty splits."""

import os
from collections.abc import Collection
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from ...checks import reject_if
from ...graph import MASKS, Graph
from ...kinds import typed
from ..undirected import undirected
from .matrices import checked_array, checked_ids, checked_labels, checked_masks, dense_features
from .parsing import read_keys, warn_unread

KNOWN = ("stopping_masks",)
KEYS = ("features", "labels", "links", "train_masks", "val_masks", "test_mask")


@typed
def read_wiki_cs(
    folder: str | os.PathLike[str], _: str = "", *, split: int = 0, ignore: Collection[str] = ()
) -> Graph:
    """Read the graph in ``data.json`` of Wiki-CS, with the masks of one of the file's splits.

    The graph is undirected, without self-loops and repeats. `val_mask` is read from ``val_masks``.
    ``stopping_masks`` are not read, so nodes for early stopping are in no mask of the graph. One
    set of test nodes is used in all splits.

    Args:
        folder: the folder with ``data.json``.
        split: index of the split; from 0 to 19 in the published file.
        ignore: unknown keys of ``data.json`` for which no warning is given.

    Returns:
        The graph; its x is a float32 Tensor ``[num_nodes, num_features]``.

    Raises:
        ValueError: if the file is missing or malformed, or if the file does not have the requested
            split.

    Example:
        >>> import json, pathlib, tempfile
        >>> tiny = {"features": [[0.5], [1.0]], "labels": [0, 1], "links": [[1], []]}
        >>> tiny["train_masks"] = [[True, False], [False, True]]
        >>> tiny["val_masks"] = [[False, True], [True, False]]
        >>> tiny["test_mask"] = [False, False]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "data.json").write_text(json.dumps(tiny))
        ...     graph = fgl.data.readers.wiki_cs.read_wiki_cs(folder, split=1)
        >>> graph.edge_index.tolist(), graph.train_mask.tolist()
        ([[1, 0], [0, 1]], [False, True])

    Source: https://github.com/pmernyei/wiki-cs-dataset; https://arxiv.org/abs/2007.02901
    """
    path, data = read_keys(Path(folder), "data.json", KEYS)
    warn_unread(path, (key for key in data if key not in (*KEYS, *KNOWN)), ignore)
    features = checked_array(f"features in {path}", data["features"], "biuf", (None, None))
    x, n = dense_features(path, features), len(features)
    links = data["links"]
    if not (isinstance(links, list) and len(links) == n and all(type(v) is list for v in links)):
        raise ValueError(f"Expected links in {path} to be {n} lists, but got something else")
    target = checked_ids(f"links in {path}", [*chain(*links)], (None,), n)
    source = torch.arange(n).repeat_interleave(torch.tensor([len(own) for own in links]))
    edges = torch.stack([source, target])
    train = checked_masks(f"train_masks in {path}", data["train_masks"], (None, n))
    val = checked_masks(f"val_masks in {path}", data["val_masks"], (len(train), n))
    test = checked_masks(f"test_mask in {path}", data["test_mask"], (n,))
    reject_if(not 0 <= split < len(train), f"split to be in [0, {len(train)})", split)
    masks: dict[str, Any] = dict(zip(MASKS, (train[split], val[split], test), strict=True))
    y = checked_labels(f"labels in {path}", data["labels"], n)
    return Graph(x, undirected(edges, n), y=y, **masks)
