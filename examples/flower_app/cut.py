"""Graphs to try it with: FOLDER/DATASET/client-K.pt, cut from a graph.

python cut.py FOLDER [DATASET] [CLIENTS]
"""

import sys
from pathlib import Path

import torch

import fgl

FIELDS = ("edge_index", "y", "num_classes", "train_mask", "val_mask", "test_mask")


def cut(folder, dataset="synthetic", clients=4):
    task = fgl.tasks.Nodes(dataset=dataset, clients=int(clients), hidden=1).load()
    folder = Path(folder) / dataset
    folder.mkdir(parents=True, exist_ok=True)
    for client, graph in enumerate(task.clients):
        x = graph.x.to_dense() if isinstance(graph.x, fgl.SparseMatrix) else graph.x
        saved = {"x": x, **{name: getattr(graph, name) for name in FIELDS}}
        torch.save(saved, folder / f"client-{client}.pt")


if __name__ == "__main__":
    cut(*sys.argv[1:])
