"""GCFL and GCFL+: clusters of clients. A cluster splits if its clients' updates diverge."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from .. import federation as fed
from ..aggregate import mean
from ..checks import Count, Natural, Weight
from ..client_network import dtw_distances, flat_parameters, min_cut, similarity
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph

Similarity = Callable[[Tensor, Tensor], Tensor]
Measure = Callable[[Inbox, Tensor], Tensor]


def cosine(updates: Tensor, sequences: Tensor) -> Tensor:
    """Similarity of two clients' updates: ``cos(Delta_i, Delta_j) + 1`` (GCFL).

    Args:
        updates: float ``[k, P]``, each client's update.
        sequences: not used.

    Returns:
        float ``[k, k]``, between 0 and 2. An update of 0 has similarity 1 to all other updates.

    Example:
        >>> cosine(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]), torch.zeros(2, 0))
        tensor([[2., 0.],
                [0., 2.]])
    """
    cosines = similarity(updates, centre=False)
    cosines = (cosines + cosines.T) / 2  # long products are summed in another order on either side
    return (cosines + 1).clamp(0, 2)


def trends(updates: Tensor, sequences: Tensor) -> Tensor:
    """Similarity of two clients' sequences: ``max_kl d_kl - d_ij``, with d from `dtw_distances`.

    Args:
        updates: not used.
        sequences: float ``[k, L]``, with one row per client; a row has one number for each of the
            last L rounds.

    Returns:
        float ``[k, k]``, at least 0.

    Example:
        >>> trends(torch.zeros(3, 0), torch.tensor([[1.0, 2.0], [1.0, 2.0], [4.0, 2.0]]))
        tensor([[3., 3., 0.],
                [3., 3., 0.],
                [0., 0., 3.]])
    """
    distances = dtw_distances(sequences)
    return distances.max() - distances


def update_norms(inbox: Inbox, updates: Tensor) -> Tensor:
    """Norms of the clients' updates, float ``[k]``.

    GCFL+ names this variant "dWs".

    Example:
        >>> update_norms(fgl.federation.Inbox({}, 1), torch.tensor([[3.0, 4.0]]))
        tensor([5.])
    """
    norms: Tensor = updates.norm(dim=1)
    return norms


@fed.layer
def gcfl(
    fedavg: Method,
    *,
    eps1: Weight = 0.05,
    eps2: Weight = 0.1,
    first_round: Natural = 20,
    similarity: Similarity = cosine,
    seq_length: Natural = 0,
    measure: Measure = update_norms,
) -> Method:
    """FedAvg within clusters; a cluster splits if its clients' updates diverge (GCFL, Alg. 1).

    A cluster Q of more than two clients splits if ``||mean_{i in Q} Delta_i|| < eps1`` and
    ``max_{i in Q} ||Delta_i|| > eps2``. The cluster splits along the minimum cut of `similarity`.
    Delta_i is client i's update of the model's parameters. Delta_i contains no batch norm
    statistics. After the splits, every cluster runs FedAvg. Absent clients influence neither the
    split nor the mean of a round. A split divides a cluster into two parts. The larger part keeps
    the cluster's number. The other part gets a new number. If both parts have the same size, the
    part that contains the lowest client number keeps the cluster's number. A client has no update
    if it is absent or has no training examples. After a split, a client without an update belongs
    to the part with the old cluster number. An absent client receives the model of this part when
    the client returns.

    This method follows the public code, with two exceptions. In the public code, clients share and
    compare only convolutions (see `fedper`), and keep their Adam state between rounds
    (``Training(keep_optimizer=True)``). Here `fedavg` determines what is shared and what is kept.
    In the public code, a client is scored with the best model of all rounds, chosen from the models
    of the clusters that contained the client. Here a client is scored with its last model.

    Args:
        fedavg: FedAvg built for a task. The server of `fedavg` runs separately for each cluster,
            and each cluster has its own server state. A new cluster's state starts as a copy of the
            old cluster's state.
        eps1: bound for the norm of a cluster's mean update, at least 0. A cluster splits only if
            this norm is below the bound. The public code uses .025 to .08, depending on the
            dataset.
        eps2: bound for the norms of single updates, at least 0. A cluster splits only if one of its
            updates has a norm above the bound. The public code uses .045 to .4.
        first_round: number of rounds before the first split; in these rounds the method equals
            FedAvg.
        similarity: a function ``(updates [k, P], sequences [k, seq_length]) -> [k, k]`` that
            compares the present clients of one cluster. The similarities must be symmetric and
            non-negative.
        seq_length: number of rounds in a client's sequence. A cluster does not split before its
            clients' sequences have this length, and a split clears all sequences. So only one
            cluster can split in a round: if several clusters are ready, the cluster with the
            smallest number splits. With 0, no sequences are used, and several clusters can split in
            one round.
        measure: a function ``(inbox, updates [k, P]) -> [k]`` that returns the next entry of each
            client's sequence.

    Returns:
        A method. The method's server keeps ``"clusters"``, int64 ``[num_clients]``, and
        ``"rounds"``, int64. The server also keeps ``"sequences"``, float64
        ``[num_clients, seq_length]``. In row k of the sequences, only the last n entries are valid.
        The number n is entry k of ``"lengths"`` (int64 ``[num_clients]``), or `seq_length` if this
        entry is larger. The server state of `fedavg` for cluster 0 is stored under ``"0/..."``.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a number is out of range, or if the given method uses SCAFFOLD.

    Example:
        >>> method = gcfl(fgl.fedavg(torch.nn.Linear(1, 1)), first_round=0)
        >>> sent = {k: {"model": {"w": torch.tensor([5.0])}} for k in range(4)}
        >>> came = {
        ...     k: {"model": {"w": torch.tensor([w])}, "num_examples": torch.tensor(1)}
        ...     for k, w in enumerate([6.0, 4.0, 6.0, 4.0])
        ... }
        >>> outbox, state = method.aggregate(fgl.federation.Inbox(came, 4, sent), {})
        >>> state["clusters"], outbox[0]["model"]["w"], outbox[1]["model"]["w"]
        (tensor([0, 1, 0, 1]), tensor([6.]), tensor([4.]))

    Source: Xie et al. 2021, https://arxiv.org/abs/2106.13423; https://github.com/Oxfordblue7/GCFL
    """
    fed.refuse(
        fedavg, "scaffold", "gcfl", "its control is a mean over all clients, not a cluster's"
    )
    buffers = {name for name, _ in fedavg.model.named_buffers()}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        before = state if "clusters" in state else _start(state, inbox.num_clients, seq_length)
        clients, updates = torch.tensor(inbox.clients), flat_updates(inbox, without=buffers)
        rounds, clusters = before["rounds"] + 1, before["clusters"].clone()
        sequences, lengths = before["sequences"].clone(), before["lengths"].clone()
        newest = measure(inbox, updates).to(sequences)
        sequences[clients] = torch.cat([sequences[clients], newest[:, None]], dim=1)[:, 1:]
        lengths[clients] += 1
        trained = torch.tensor([bool(inbox[k].get("num_examples", 1)) for k in inbox.clients])
        parents: dict[int, int] = {}
        for cluster in before["clusters"][clients].unique().tolist():
            rows = (trained & (before["clusters"][clients] == cluster)).nonzero().squeeze(1)
            begun_again = bool(parents) and seq_length > 0
            enough = not begun_again and bool((lengths[clients[rows]] >= seq_length).all())
            if rounds > first_round and enough and disagree(updates[rows], eps1=eps1, eps2=eps2):
                part = min_cut(similarity(updates[rows], sequences[clients[rows]]))
                parents[int(clusters.max()) + 1] = cluster
                clusters[clients[rows[part]]] = clusters.max() + 1
        if parents:
            sequences, lengths = torch.zeros_like(sequences), torch.zeros_like(lengths)
        outbox, inner = _clusterwise(fedavg, inbox, clusters, before, parents)
        own = {"clusters": clusters, "rounds": rounds, "sequences": sequences, "lengths": lengths}
        return outbox, {**own, **inner}

    return replace(fedavg, aggregate=aggregate)


@fed.layer
def gcfl_plus(
    fedavg: Method,
    *,
    eps1: float = 0.05,
    eps2: float = 0.1,
    first_round: int = 20,
    seq_length: Count = 5,
    sequence: Literal["updates", "gradients"] = "updates",
) -> Method:
    """Split clusters by comparing the clients' sequences of update norms (GCFL+).

    Args:
        fedavg: FedAvg built for a task.
        eps1: bound for the norm of a cluster's mean update, at least 0. A cluster splits only if
            this norm is below the bound.
        eps2: bound for the norms of single updates, at least 0. A cluster splits only if one of its
            updates has a norm above the bound.
        first_round: number of rounds before the first split; in these rounds the method equals
            FedAvg.
        seq_length: number of rounds that are compared, at least 1.
        sequence: the numbers that are compared. With ``"updates"``, a client's sequence contains
            the norms of the client's updates. With ``"gradients"``, the sequence contains the norms
            of the gradients after local training, which the client sends as ``"gradient_norm"``.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a number is out of range, or if `sequence` is unknown.

    Example:
        >>> method = gcfl_plus(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), sequence="gradients")
        >>> x, edges = torch.eye(4), torch.tensor([[0], [1]])
        >>> graph = fgl.Graph(x, edges, y=torch.tensor([0, 1, 0, 1]))
        >>> list(method.send(method.initial(), {}, {}, graph)[0])
        ['model', 'num_examples', 'gradient_norm']

    Source: Xie et al. 2021, https://arxiv.org/abs/2106.13423
    """
    how: Any = {"eps1": eps1, "eps2": eps2, "first_round": first_round, "seq_length": seq_length}
    if sequence == "updates":
        return gcfl(fedavg, similarity=trends, **how)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, state = fedavg.send(params, context, state, graph)
        return {**message, "gradient_norm": gradient_norm(fedavg, params, context, graph)}, state

    measure: Measure = lambda inbox, updates: inbox.stack("gradient_norm")  # noqa: E731
    return gcfl(replace(fedavg, send=send), similarity=trends, measure=measure, **how)


def gradient_norm(method: Method, params: Params, context: Any, graph: Graph) -> Tensor:
    """Norm of the loss's gradient at `params` on the batch of the first local step.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.fedavg(fgl.nn.GCN(2, 8, 2))
        >>> gradient_norm(method, method.initial(), {}, graph).shape
        torch.Size([])
    """
    batches = method.train.batches
    steps = iter(batches(graph, context) if batches else ())
    batch, batch_context = next(steps, (graph, context))
    flat = [grad.flatten() for grad in fed.gradient(method, params, batch, batch_context).values()]
    length: Tensor = torch.cat([*flat, next(iter(params.values())).new_zeros(1)]).norm()
    return length


def flat_updates(inbox: Inbox, *, without: Collection[str] = ()) -> Tensor:
    """Each participant's update, flattened to one row: float ``[k, P]``.

    Args:
        inbox: the clients' models.
        without: names of tensors to leave out.

    Example:
        >>> sent = {0: {"model": {"w": torch.ones(2, 2)}}}
        >>> flat_updates(fgl.federation.Inbox({0: {"model": {"w": torch.eye(2)}}}, 1, sent))
        tensor([[ 0., -1., -1.,  0.]])
    """
    return flat_parameters(fed.drop(inbox.changes("model"), without))


def disagree(updates: Tensor, *, eps1: float, eps2: float) -> bool:
    """Whether a cluster's mean update is small, but at least one client's update is large.

    Example:
        >>> opposite = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
        >>> disagree(opposite, eps1=0.1, eps2=0.5), disagree(opposite[:2], eps1=0.1, eps2=0.5)
        (True, False)
    """
    if len(updates) <= 2:
        return False
    together = mean({"update": updates}, torch.ones(len(updates)))["update"]
    return bool(together.norm() < eps1) and bool(updates.norm(dim=1).max() > eps2)


def _start(state: State, num_clients: int, seq_length: int) -> State:
    """First state of the server: a single cluster with the state of the wrapped method."""
    return {
        "clusters": torch.zeros(num_clients, dtype=torch.int64),
        "rounds": torch.tensor(0),
        "sequences": torch.zeros(num_clients, seq_length, dtype=torch.float64),
        "lengths": torch.zeros(num_clients, dtype=torch.int64),
        **{f"0/{key}": value for key, value in state.items()},
    }


def _clusterwise(
    fedavg: Method, inbox: Inbox, clusters: Tensor, state: State, parents: Mapping[int, int]
) -> tuple[dict[int, Message], State]:
    """Aggregate each cluster's messages by `fedavg`.

    Return the outbox and the clusters' states.
    """
    outbox: dict[int, Message] = {}
    new_state: State = {}
    for cluster in clusters.unique().tolist():
        members = (clusters == cluster).nonzero().squeeze(1).tolist()
        here = {client: inbox[client] for client in members if client in inbox}
        prefix = f"{parents.get(cluster, cluster)}/"
        own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        if here:
            messages, own = fedavg.aggregate(Inbox(here, inbox.num_clients, inbox.sent), own)
            outbox |= {client: messages[client] for client in members if client in messages}
        new_state |= {f"{cluster}/{key}": value for key, value in own.items()}
    return dict(sorted(outbox.items())), new_state
