"""Presets: the settings that published methods need.

Some of these methods run plain FedAvg, and differ from FedAvg only in their setting.
"""

from typing import Any, TypeVar

from ..checks import reject_if
from ..federation import Method
from ..nn import GCN, SAGE
from .graphs import Graphs
from .nodes import Nodes
from .settings import Setting
from .subgraph_nodes import SubgraphNodes
from .typed_nodes import TypedNodes

AnySetting = TypeVar("AnySetting", bound=Setting)

NEEDS: dict[str, dict[type[Setting], dict[str, Any]]] = {
    "fedaux": {Nodes: {"model": "aux"}, SubgraphNodes: {"model": "aux"}},
    "feddep": {Nodes: {"model": "deep"}, SubgraphNodes: {"model": "deep"}},
    "fedgcn": {Nodes: {"model": "gcn", "hops": 2}, SubgraphNodes: {"model": "gcn", "hops": 2}},
    "fedsage": {Nodes: {"model": "sage"}, SubgraphNodes: {"model": "sage"}},
    "fedsage-plus": {Nodes: {"model": "sage"}, SubgraphNodes: {"model": "sage"}},
    "fedgm": {Nodes: {"model": "gcn"}, SubgraphNodes: {"model": "gcn"}},
    "fggp": {Nodes: {"model": "gcn"}, SubgraphNodes: {"model": "gcn"}},
    "fedhgn": {TypedNodes: {"bases": 4}},
    "fedspa": {Nodes: {"model": "spa"}, SubgraphNodes: {"model": "spa"}},
    "fedssp": {Graphs: {"model": "ssp", "dropout": 0.1}},
    "fedstar": {kind: {"model": "star"} for kind in (Nodes, SubgraphNodes, Graphs)},
}


def preset(method: str, kind: type[AnySetting], **values: Any) -> AnySetting:
    """A setting with the values that a published method uses.

    FedSage is FedAvg on a task with a GraphSAGE network. FedGCN is FedAvg on a task in which a
    node's features are sums over all its neighbours, including neighbours at other clients.

    Args:
        method: ``"fedaux"``, ``"feddep"``, ``"fedgcn"``, ``"fedhgn"``, ``"fedsage"``,
            ``"fedsage-plus"``, ``"fedspa"``, ``"fedssp"``, ``"fedstar"``; for a name that is not in
            this list, the setting has its default values.
        kind: class of the setting, such as `Nodes`.
        values: values of further fields of the setting.

    Example:
        >>> task = preset("fedgcn", fgl.tasks.Nodes, clients=3, hidden=8).load(seed=0)
        >>> task.fedavg.model.summed, task.bytes_before > 0
        (True, True)

    Source: FedSage: Zhang et al. 2021, https://arxiv.org/abs/2106.13430; FedGCN: Yao et al. 2022,
    https://arxiv.org/abs/2201.12433
    """
    return kind(**{**NEEDS.get(method, {}).get(kind, {}), **values})


def fedgcn(fedavg: Method) -> Method:
    """FedGCN: clients sum neighbours' features across all clients, then run FedAvg.

    In the public code all clients have equal weights, as with `fgl.tasks.task.weighed_equally`.
    Here the task determines the weights, so FedGCN differs from FedAvg only in the sums.

    Args:
        fedavg: FedAvg built for a task. The task's network reads these sums; see `preset`.

    Returns:
        The given `fedavg`. The function only checks that the network is FedGCN's network.

    Raises:
        ValueError: if the clients of the task do not have this network.

    Example:
        >>> fedgcn(fgl.fedavg(fgl.nn.GCN(4, 8, 2)))
        Traceback (most recent call last):
        ValueError: Expected fedavg to train a GCN on sums (model gcn, hops 1 or 2), but got a GCN

    Source: Yao et al. 2022, https://arxiv.org/abs/2201.12433; yh-yao/FedGCN (src/server_class.py)
    """
    model = fedavg.model
    fits = isinstance(model, GCN) and model.summed
    return _of_network(fedavg, fits, "a GCN on sums (model gcn, hops 1 or 2)")


def fedsage(fedavg: Method) -> Method:
    """FedSage: FedAvg with a GraphSAGE network.

    In the public code (zkhku/fedsage, src/fedsage.py) all clients have equal weights, as with
    `fgl.tasks.task.weighed_equally`. Here the task determines the weights, so FedSage differs from
    FedAvg only in the network. The public code uses stellargraph's network. In a layer of this
    network, half of a node's outputs are computed from the node, and half from the node's
    neighbours. After the last layer, each node's output is scaled to length 1, and a linear layer
    computes the logits. In the public code, each layer uses 5 sampled neighbours, and minibatches
    have 32 nodes. Training in the public code starts from the mean of the clients' initial models.
    In the public code, the clients use a single Adam optimiser one after another, without a reset
    of the optimiser's moments. Here the task determines the network and the training.

    Args:
        fedavg: FedAvg built for a task with a GraphSAGE network; see `preset`.

    Returns:
        `fedavg`.

    Raises:
        ValueError: if the clients of the task do not have this network.

    Example:
        >>> fedsage(fgl.fedavg(fgl.nn.GIN(4, 8, 2)))
        Traceback (most recent call last):
        ValueError: Expected fedavg to train a SAGE (model sage), but got a GIN

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430
    """
    return _of_network(fedavg, isinstance(fedavg.model, SAGE), "a SAGE (model sage)")


def _of_network(fedavg: Method, fits: bool, expected: str) -> Method:
    reject_if(not fits, f"fedavg to train {expected}", f"a {type(fedavg.model).__name__}")
    return fedavg
