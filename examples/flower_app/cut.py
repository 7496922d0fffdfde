"""Graphs to try it with: folders FOLDER/DATASET/client-K, cut from a graph.

python cut.py FOLDER [DATASET] [CLIENTS]
"""

import sys
from pathlib import Path

import fgl


def cut(folder, dataset="synthetic", clients=4):
    setting = fgl.tasks.Nodes(dataset=dataset, clients=int(clients))
    for client, graph in enumerate(setting.load().clients):
        place = Path(folder) / dataset / f"client-{client}"
        fgl.data.save_client(graph, place)


if __name__ == "__main__":
    cut(*sys.argv[1:])
