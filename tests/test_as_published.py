"""Methods beside what their authors' public code does, written again in loops: the same numbers."""

from dataclasses import replace as changed
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import gradient, operator
from federations import CLASSES, FEATURES, double, graphs
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fgl
from fgl import Training, tasks
from fgl.methods import fedpub, fedsage_plus, proxy_graph
from fgl.tasks.mended import _hide, mend
from fgl.tasks.task import weighed_equally

LR, DECAY, STEPS = 0.1, 0.01, 2
SGD = Training(partial(torch.optim.SGD, lr=LR, weight_decay=DECAY), num_steps=STEPS)
CLIENTS = double(graphs())
Params = dict[str, Tensor]


def agree(got: Any, want: Any) -> None:
    """Tensors of the same names that differ by rounding alone."""
    torch.testing.assert_close(dict(got), dict(want), rtol=0, atol=1e-12)


def drawn(make: Any) -> Any:
    """A network in double, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


def descend(params: Params, loss: Any, moving: Any = None) -> Params:
    """A step of SGD with weight decay on all tensors, or on those entries that may move."""
    grads, new = gradient(loss, params), {}
    for name, value in params.items():
        step = grads[name] + DECAY * value
        new[name] = value - LR * step * (1.0 if moving is None else moving[name])
    return new


def on_training_nodes(logits: Tensor, own: fgl.Graph) -> Tensor:
    assert own.y is not None
    return cross_entropy(logits[own.train_mask], own.y[own.train_mask])


# FED-PUB


class TwoConvolutions(nn.Module):
    """The authors' network: two convolutions, and a linear classifier after them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = fgl.nn.GCNConv(FEATURES, 5), fgl.nn.GCNConv(5, 4)
        self.clsif = nn.Linear(4, CLASSES)

    def forward(self, x: Any, adj: Any, *, return_embedding: bool = False) -> Any:
        embedding = self.conv2(self.conv1(x, adj).relu(), adj)
        out = self.clsif(embedding.relu())
        return (out, embedding) if return_embedding else out


WEIGHTS = ("conv1.lin.weight", "conv2.lin.weight", "clsif.weight")


def two_convolutions(w: Params, m: Params, own: fgl.Graph, bound: float = 0.0) -> Any:
    """Logits and the second convolution's output of weights times masks."""
    used = {n: w[n] * torch.where(m[n].abs() < bound, 0.0, m[n]) for n in WEIGHTS}
    a, x = operator(own), own.x
    h = (a @ (x @ used["conv1.lin.weight"].T) + w["conv1.bias"]).relu()  # type: ignore[operator]
    z = a @ (h @ used["conv2.lin.weight"].T) + w["conv2.bias"]
    return z.relu() @ used["clsif.weight"].T + w["clsif.bias"], z


def published_fedpub(first: Params, probes: fgl.Graph, who: Any, how: Any) -> Any:
    """models/fedpub/{client,server}.py: what each client is sent in the end, and its masks."""
    common, sent, masks = first, {}, {}
    for index, here in enumerate(who):
        weights, embeddings = [], []
        for k in here:
            received = sent.get(k, common)  # of its first round: the server's mean
            w = received
            m = masks.get(k, {n: torch.ones_like(first[n]) for n in WEIGHTS})

            def loss(
                p: Params, own: Any = CLIENTS[k], start: Any = received, t: int = index
            ) -> Any:
                mine = {n: p["mask " + n] for n in WEIGHTS}
                total = on_training_nodes(two_convolutions(p, mine, own)[0], own)
                if how["penalties"]:
                    total = total + sum(how["sparsity"] * mine[n].abs().sum() for n in WEIGHTS)
                if how["penalties"] and t > 0:
                    total = total + sum(how["proximity"] * (p[n] - start[n]).norm() for n in start)
                return total

            for _ in range(STEPS):
                both = descend({**w, **{"mask " + n: m[n] for n in WEIGHTS}}, loss)
                w, m = {n: both[n] for n in w}, {n: both["mask " + n] for n in WEIGHTS}
            masks[k] = m
            weights.append(w)
            embeddings.append(two_convolutions(w, m, probes, how["sparsity"])[1].mean(0))
        common = {n: sum(w[n] for w in weights) / len(weights) for n in first}
        for i, k in enumerate(here):
            alike = [torch.cosine_similarity(embeddings[i], e, 0) for e in embeddings]
            row = torch.stack(alike).mul(how["scale"]).exp()
            row = row / row.sum()
            sent[k] = {n: sum(row[j] * w[n] for j, w in enumerate(weights)) for n in first}
    return sent, masks, common


@pytest.mark.parametrize("penalties", [True, False])
def test_fedpub_is_the_public_code(penalties: bool) -> None:
    """The embedding, the first round of who comes later, the penalties' first round, masks."""
    fedavg = fgl.fedavg(drawn(TwoConvolutions), train=SGD)
    probes = proxy_graph(CLIENTS[0], blocks=2, num_nodes=10, p=0.3,
                         generator=torch.Generator().manual_seed(0))  # fmt: skip
    how = {"sparsity": 0.05, "proximity": 0.3, "scale": 3.0, "penalties": penalties}
    method = fedpub(fedavg, probes, **how)  # type: ignore[arg-type]
    who = [[0, 1], [0, 2], [1, 2, 3]]
    absent = lambda index, client: client not in who[index]  # noqa: E731
    result = fgl.run(method, CLIENTS, num_rounds=3, dropouts=absent)
    early = fgl.run(method, CLIENTS, num_rounds=1, dropouts=absent)
    sent, masks, _ = published_fedpub(fedavg.initial(), probes, who, how)
    for k in range(4):
        agree(result.outbox[k]["model"], sent[k])  # type: ignore[arg-type]
        own: Any = result.client_states[k]["own"]
        agree({n.removeprefix("mask."): m for n, m in own.items()}, masks[k])
    common = published_fedpub(fedavg.initial(), probes, who[:1], how)[2]
    agree(early.outbox[3]["model"], common)  # type: ignore[arg-type]


# FedSelect


class Normalised(nn.Module):
    """A network with weights that are vectors, and with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = fgl.nn.GCNConv(FEATURES, 7)
        self.norm, self.head = nn.BatchNorm1d(7), nn.Linear(7, CLASSES)

    def forward(self, x: Any, adj: Any) -> Any:
        return self.head(self.norm(self.conv(x, adj)).relu())


def normalised(p: Params, statistics: Params, own: fgl.Graph) -> tuple[Tensor, Params]:
    """Logits in training, and the statistics after it."""
    h = operator(own) @ (own.x @ p["conv.lin.weight"].T) + p["conv.bias"]  # type: ignore[operator]
    centre, spread = h.mean(0), h.var(0, unbiased=False)
    z = (h - centre) / (spread + 1e-5).sqrt() * p["norm.weight"] + p["norm.bias"]
    n = len(h)
    new = {
        "norm.running_mean": 0.9 * statistics["norm.running_mean"] + 0.1 * centre,
        "norm.running_var": 0.9 * statistics["norm.running_var"] + 0.1 * spread * n / (n - 1),
        "norm.num_batches_tracked": statistics["norm.num_batches_tracked"] + 1,
    }
    return z.relu() @ p["head.weight"].T + p["head.bias"], {k: v.detach() for k, v in new.items()}


def published_fedselect(first: Params, rounds: int, *, top: float, cap: float, every: int) -> Any:
    """fedselect.py, lottery_ticket.py, broadcast.py, pflopt/optimizers.py: each client's model."""
    names = [n for n in first if "running" not in n and "tracked" not in n]
    stats = [{n: v for n, v in first.items() if n not in names} for _ in CLIENTS]
    models = [{n: first[n] for n in names} for _ in CLIENTS]
    masks = [{n: torch.zeros_like(first[n]) for n in names} for _ in CLIENTS]
    before = [dict(m) for m in models]
    for index in range(rounds):
        used = [dict(m) for m in masks]
        for k, own in enumerate(CLIENTS):
            for _epoch in range(STEPS):
                for own_pass in (True, False):
                    may = {n: m if own_pass else 1 - m for n, m in used[k].items()}
                    told: list[Params] = []

                    def loss(p: Params, own: Any = own, s: Any = stats[k], to: Any = told) -> Any:
                        logits, after = normalised(p, s, own)
                        to.append(after)
                        return on_training_nodes(logits, own)

                    models[k] = descend(models[k], loss, may)
                    stats[k] = told[0]
            if index and index % every == 0:
                for n in names:
                    share = float(masks[k][n].sum()) / masks[k][n].numel()
                    if "weight" not in n or share > cap:
                        continue
                    far = (models[k][n] - before[k][n]).abs()
                    free = sorted(far[masks[k][n] == 0].tolist())
                    cut = free[round((1 - top) * len(free))]
                    masks[k][n] = torch.where(far >= cut, 1.0, masks[k][n])
                before[k] = dict(models[k])
        for n in names:
            shared = torch.stack([1 - m[n] for m in used])
            total = sum((1 - m[n]) * p[n] for m, p in zip(used, models, strict=True))
            average = total / shared.sum(0).clamp(min=1)
            for k in range(len(CLIENTS)):
                models[k][n] = torch.where(used[k][n] == 0, average, models[k][n])
    return [{**m, **s} for m, s in zip(models, stats, strict=True)], masks


def test_fedselect_is_the_public_code() -> None:
    """Passes within each epoch, local statistics, how many are chosen, until the cap is passed."""
    fedavg = weighed_equally(fgl.fedavg(drawn(Normalised), train=SGD))
    how: Any = {"top": 0.3, "cap": 0.5, "every": 2}
    method = fgl.methods.fedselect(fedavg, **how)
    result = fgl.run(method, CLIENTS, num_rounds=8)
    models, masks = published_fedselect(fedavg.initial(), 8, **how)
    for k, own in enumerate(CLIENTS):
        agree(method.deploy(result.outbox[k], result.client_states[k], own), models[k])
        chosen: Any = result.client_states[k]["mask"]
        assert sorted(chosen) == ["conv.lin.weight", "head.weight", "norm.weight"]
        for name, mask in chosen.items():
            assert torch.equal(mask, masks[k][name] > 0)
            assert float(mask.double().mean()) > 0.5  # the cap is passed once


# FedSage+


def drawn_once(net: Any) -> Any:
    """The network, whose noise and dropout are always the same for as many nodes."""
    draw = net.draw

    def same_draw(num_nodes: int) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(num_nodes)
            return draw(num_nodes)

    net.draw = same_draw
    return net


def some_neighbours(own: fgl.Graph, count: int, width: int) -> tuple[Tensor, Tensor]:
    """`width` neighbours of each of `count` nodes that have one, with repeats, never random."""
    near: dict[int, list[int]] = {}
    for source, target in own.edge_index.t().tolist():
        near.setdefault(target, []).append(source)
    nodes = sorted(near)
    x: Any = own.x
    rows = []
    for i in range(count):
        each = near[nodes[3 * i % len(nodes)]]
        rows.append(torch.stack([x[each[k % len(each)]] for k in range(width)]))
    return torch.stack(rows), torch.full((count,), width)


def published_greedy(made: Tensor, true: Tensor, counts: Tensor, missing: Tensor) -> Tensor:
    """src/models/feat_loss.py."""
    places, total = made.shape[1], made.new_zeros(())
    for i in range(len(made)):
        for j in range(min(places, int(counts[i]))):
            known = min(true.shape[1], int(missing[i]))
            if known:
                each = torch.stack(
                    [(made[i, j] - true[i, k]).square().mean() for k in range(known)]
                )
                total = total + each.min()
    return total / (len(made) * places)


def published_classes(net: Any, p: Params, own: fgl.Graph, counts: Tensor, made: Tensor) -> Tensor:
    """The classifier on the graph with the first int(c) neighbours of each node (MendGraph)."""
    x, edges = [own.x], [own.edge_index]
    new = own.num_nodes
    for i in range(own.num_nodes):
        for j in range(min(made.shape[1], int(counts[i]))):
            x.append(made[i, j][None])
            edges.append(torch.tensor([[i, new], [new, i]]))
            new += 1
    inputs = torch.cat(x), torch.cat(edges, 1)  # type: ignore[arg-type]
    at = {n.removeprefix("classifier."): t for n, t in p.items() if n.startswith("classifier.")}
    logits: Tensor = torch.func.functional_call(net.classifier, at, inputs)
    return logits[: own.num_nodes]


def published_generators(
    net: Any, impaired: Any, whole: Any, who: list[list[int]], weight: float
) -> list[Params]:
    """train_fedgen of src/fedsage_plus.py, with SGD, and the clients of each epoch."""
    start = {name: p.detach().clone() for name, p in net.named_parameters()}
    models = [dict(start) for _ in whole]
    for here in who:
        for i in here:
            graph, missing, features = impaired[i]
            rows = graph.train_mask

            def loss(p: Params, i: int = i, graph: Any = graph, rows: Any = rows, here: Any = here,
                     missing: Any = missing, features: Any = features) -> Tensor:  # fmt: skip
                drawn = net.draw(graph.num_nodes)
                count, made, _ = torch.func.functional_call(net, p, (graph.x, graph.adj), drawn)
                logits = published_classes(net, p, graph, count, made)
                mine = made[rows], features[rows], count[rows], missing[rows]
                apart = (count[rows] - missing[rows]).abs()
                smooth = torch.where(apart < 1, apart.square() / 2, apart - 0.5).mean()
                total = smooth + published_greedy(*mine) + on_training_nodes(logits, graph)
                for j in here:
                    if j != i:
                        theirs, _ = some_neighbours(whole[j], int(rows.sum()), 5)
                        relayed = published_greedy(mine[0], theirs, mine[2], mine[3])
                        total = total + weight * relayed
                return total / len(here)

            learns = {n: 1.0 if n.startswith("features.") else 0.0 for n in start}
            models[i] = descend(models[i], loss, learns)
    return models


@pytest.mark.parametrize(("weight", "at_once"), [(1.0, "all"), (0.25, 1)])
def test_fedsage_plus_is_the_public_code(weight: float, at_once: Any) -> None:
    """Counts are cut, the feature generator learns alone, the cross term, what is mended.

    In the second epoch client 1 is absent.
    """
    make = partial(fgl.nn.NeighbourGenerator, FEATURES, 6, CLASSES, latent=4, widths=(5, 6))
    net = drawn_once(drawn(make))
    with torch.no_grad():
        net.count.bias += 0.4
    whole = CLIENTS[:3]
    task = tasks.generator_task(whole, net, changed(SGD, num_steps=1), share=1.0)
    of = dict(zip(task.clients, whole, strict=True))
    shown = lambda own, count, width: some_neighbours(of[own], count, width)  # noqa: E731
    method = fedsage_plus(task.fedavg, weight=weight, neighbours=shown)
    absent: Any = {"dropouts": lambda index, client: index >= 3 and client == 1}
    result = fgl.run(method, task.clients, num_rounds=6, clients_at_once=at_once, **absent)
    hidden = [
        _hide(own, 1.0, 5, fgl.federation.fold_in(0, k, "hide")) for k, own in enumerate(whole)
    ]
    impaired = [(graph, each.missing, each.features)
                for graph, each in zip(task.clients, hidden, strict=True)]  # fmt: skip
    models = published_generators(net, impaired, whole, [[0, 1, 2], [0, 2]], weight)
    differ = 0
    for k, own in enumerate(whole):
        agree(result.client_states[k]["model"], models[k])
        made = mend(net, models[k], own, part=task.clients[k])
        count, _, _ = torch.func.functional_call(
            net.eval(),
            models[k],
            task.clients[k].inputs,
            {"noise": net.draw(task.clients[k].num_nodes)["noise"]},
        )
        want = [(int(task.clients[k].node_id[v]), min(5, int(c))) for v, c in enumerate(count)]  # type: ignore[index]
        new = made.edge_index[:, own.num_edges :]
        got = new[1][new[0] >= own.num_nodes].bincount(minlength=own.num_nodes)
        assert {v: int(n) for v, n in enumerate(got) if n} == {v: n for v, n in want if n}
        differ += int((count.round() != count.floor()).sum())
    assert differ


# GraphFL


class Smooth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = fgl.nn.GCNConv(FEATURES, 5), fgl.nn.GCNConv(5, CLASSES)

    def forward(self, x: Any, adj: Any) -> Any:
        return self.conv2(torch.tanh(self.conv1(x, adj)), adj)


def published_graphfl(first: Params, rounds: int, adapt_steps: int, adapt_lr: float) -> Params:
    """LocalUpdate_GCN.forward of gnn_ml_update_nonIID.py, round by round."""

    def on(p: Params, own: fgl.Graph, mask: Any) -> Tensor:
        a = operator(own)
        h = torch.tanh(a @ (own.x @ p["conv1.lin.weight"].T) + p["conv1.bias"])  # type: ignore[operator]
        logits = a @ (h @ p["conv2.lin.weight"].T) + p["conv2.bias"]
        return cross_entropy(logits[mask], own.y[mask])  # type: ignore[index]

    shared = {name: value.clone().requires_grad_() for name, value in first.items()}
    for _ in range(rounds):
        adam = torch.optim.Adam(shared.values(), lr=0.02, weight_decay=5e-4)
        adam.zero_grad()
        for own in CLIENTS:
            fast = {name: value.detach().requires_grad_() for name, value in shared.items()}
            for _step in range(adapt_steps):
                grads = torch.autograd.grad(on(fast, own, own.train_mask), list(fast.values()))
                fast = {
                    name: (value - adapt_lr * grad).detach().requires_grad_()
                    for (name, value), grad in zip(fast.items(), grads, strict=True)
                }
            query = torch.autograd.grad(on(fast, own, own.val_mask), list(fast.values()))
            for leaf, grad in zip(shared.values(), query, strict=True):
                leaf.grad = grad / len(CLIENTS) + (0 if leaf.grad is None else leaf.grad)
        adam.step()
    return {name: value.detach() for name, value in shared.items()}


def test_graphfls_meta_step_is_the_public_code() -> None:
    """First order, all clients alike, a new Adam with weight decay in each round."""
    one_step = Training(partial(torch.optim.SGD, lr=1.0), num_steps=1)
    fedavg = fgl.fedavg(drawn(Smooth), train=one_step)
    inner = fgl.methods.graphfl(fedavg, adapt_steps=3, adapt_lr=0.1, query="validation")
    method = fgl.methods.fedopt(
        inner, rule="adam", server_lr=0.02, beta2=0.999, tau=1e-8, weight_decay=5e-4,
        bias_correction=True, anew=True,
    )  # fmt: skip
    result = fgl.run(method, CLIENTS, num_rounds=3)
    agree(result.outbox[0]["model"], published_graphfl(fedavg.initial(), 3, 3, 0.1))  # type: ignore[arg-type]


# HeurFedAMP


def published_heurfedamp(first: Params, rounds: int) -> list[Params]:
    """pytorch/fedamp.py and pytorch/fedamp/utils.py of pFedGraph."""
    models, clouds = [dict(first) for _ in CLIENTS], [dict(first) for _ in CLIENTS]
    for index in range(rounds):
        for k, own in enumerate(CLIENTS):

            def loss(p: Params, own: Any = own, cloud: Any = clouds[k], t: int = index) -> Tensor:
                h = torch.tanh(operator(own) @ (own.x @ p["conv1.lin.weight"].T) + p["conv1.bias"])
                logits = operator(own) @ (h @ p["conv2.lin.weight"].T) + p["conv2.bias"]
                total = on_training_nodes(logits, own)
                return total + (t > 0) * 0.5 * sum((p[n] - cloud[n]).square().sum() for n in p)

            for _ in range(STEPS):
                models[k] = descend(models[k], loss)
        far = [torch.cat([(m[n] - first[n]).flatten() for n in first]) for m in models]
        for i in range(len(CLIENTS)):
            row = torch.stack([(10 * torch.cosine_similarity(far[i], f, 0)).exp() for f in far])
            row[i] = 0
            row = 0.7 * row / row.sum()
            row[i] = 0.3
            clouds[i] = {n: sum(row[j] * m[n] for j, m in enumerate(models)) for n in first}  # type: ignore[misc]
    return models


def test_heurfedamp_is_the_public_code() -> None:
    fedavg = fgl.fedavg(drawn(Smooth), train=SGD)
    states = fgl.run(fgl.methods.heurfedamp(fedavg), CLIENTS, num_rounds=3).client_states
    for k, want in enumerate(published_heurfedamp(fedavg.initial(), 3)):
        agree(states[k]["model"], want)


# FedSage, FedGCN


@pytest.mark.parametrize("name", ["fedsage", "fedgcn"])
def test_clients_can_weigh_the_same(name: str) -> None:
    """As train_fedSage of src/fedsage.py and src/server_class.py of FedGCN have it."""
    kind = {"fedsage": fgl.nn.SAGE, "fedgcn": partial(fgl.nn.GCN, summed=True)}[name]
    net = drawn(lambda: kind(FEATURES, 4, CLASSES, dropout=0.0))
    fedavg, sent = fgl.fedavg(net, train=SGD), []
    build = getattr(fgl.tasks, name)

    def send(params: Any, *given: Any) -> Any:
        sent.append(params)
        return weighed_equally(build(fedavg)).send(params, *given)

    method = changed(weighed_equally(build(fedavg)), send=send)
    got = fgl.run(method, CLIENTS, num_rounds=1).outbox[0]["model"]
    agree(got, {n: sum(each[n] for each in sent) / len(sent) for n in sent[0]})  # type: ignore[arg-type]
    plain = fgl.run(build(fedavg), CLIENTS, num_rounds=1).outbox[0]["model"]
    want = fgl.run(fedavg, CLIENTS, num_rounds=1).outbox[0]["model"]
    agree(plain, want)  # type: ignore[arg-type]
