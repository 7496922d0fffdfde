"""Cross-domain: Cora, CiteSeer and PubMed learn one graph layer together.

    python examples/cross_domain.py

Three clients hold papers of three fields: other words, other classes. So
their networks differ, and no plain average of them exists. What reads the
words and what names the class stay at home. The convolution between them
travels: how a paper reads those that it cites.

FedPer of that layer stands beside each client alone, which starts from
the same tensors and takes as many steps. Of each client the round counts
that is best on its own validation papers. Three minutes on one core.
"""

from functools import partial

import torch

import fgl
from fgl.methods import fedper, local

NAMES = ("cora", "citeseer", "pubmed")
SEEDS = (0, 1, 2)
ADAM = partial(torch.optim.Adam, lr=0.01, weight_decay=5e-4)


class Net(torch.nn.Module):
    """Words to hidden units, a shared convolution, hidden units to classes."""

    def __init__(self, features, classes, hidden=64):
        super().__init__()
        layer = partial(fgl.nn.GCN, num_layers=1)
        self.words = layer(features, hidden, hidden)
        self.conv = layer(hidden, hidden, hidden)
        self.head = torch.nn.Linear(hidden, classes)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, adj):
        h = self.dropout(self.words(x, adj).relu())
        h = self.dropout(self.conv(h, adj).relu())
        return self.head(h)


def net(graph):
    """A client's own network: as wide as its words and classes."""
    return Net(graph.num_features, graph.num_classes)


def papers(name):
    """A dataset with its public split, 20 training papers a class."""
    graph = fgl.data.normalize_features(fgl.data.load(name))
    return fgl.data.splits.split(graph, "public", dataset=name)


def accuracies(model, clients):
    """Accuracies of each client's model, under the name of its dataset."""
    names = dict(zip(clients, NAMES, strict=True))

    @torch.no_grad()
    def score(params, graph):
        guess = fgl.predict(model, params, graph).argmax(1)
        hit = (guess == graph.y).double()
        parts = {"val": graph.val_mask, "test": graph.test_mask}
        name = names[graph]
        return {f"{part} {name}": hit[mask].mean() for part, mask in parts.items()}

    return score


def best(history):
    """Each client's test accuracy in the round that it would choose."""
    chosen = []
    for name in NAMES:
        metrics = (record.metrics for record in history)
        pairs = [(each[f"val {name}"], each[f"test {name}"]) for each in metrics]
        chosen.append(max(pairs, key=lambda pair: pair[0])[1])
    return chosen


def main(num_rounds=40, seeds=SEEDS):
    clients = [papers(name) for name in NAMES]
    train = fgl.Training(ADAM, num_steps=5)
    for title, wrap in (("FedPer", lambda method: method), ("alone", local)):
        rows = []
        for seed in seeds:
            torch.manual_seed(seed)  # the first tensors'
            fedavg = fgl.fedavg(net(clients[0]), train=train)
            method = wrap(fedper(fedavg, shared=["conv"], models=net))
            score = accuracies(fedavg.model, clients)
            how = {"num_rounds": num_rounds, "seed": seed, "score": score}
            rows.append(best(fgl.run(method, clients, **how).history))
        each = torch.tensor(rows) * 100
        for name, column in zip(NAMES, each.T, strict=True):
            print(f"{title:7}{name:9}{column.mean():5.1f} +- {column.std():.1f}")


if __name__ == "__main__":
    main()
