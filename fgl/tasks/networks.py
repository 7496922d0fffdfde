"""Networks for node tasks, chosen by name, and the inputs that these networks read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from .. import data
from ..checks import Count, Share, about, reject_if
from ..graph import Graph
from ..nn import GAT, GCN, SAGE, SPA, AuxSAGE, DeepNeighbours, Star
from .settings import Cut, declares
from .structure import with_structure

MODELS: dict[str, Any] = {
    "gcn": GCN,
    "gat": GAT,
    "sage": SAGE,
    "aux": AuxSAGE,
    "spa": SPA,
    "deep": DeepNeighbours,
    "star": partial(Star, pooling="none"),
}


@declares
class Networks(Cut):
    """Fields of settings that cut one graph among clients and offer a choice of networks."""

    model: Literal["gcn", "gat", "sage", "aux", "spa", "deep", "star"] = "gat"
    """The network of the clients; star also reads encodings of structure, as in FedStar; aux, spa
    and deep are the networks of FedAux, FedSPA and FedDEP."""
    hops: Literal[0, 1, 2] = 0
    """Hops over which clients sum neighbours' features before training; if not 0, use gcn."""
    hidden: Count = 128
    dropout: Share = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hops and self.model != "gcn":
            text = (
                f"Expected hops to be 0 beside {self.model}, but got {self.hops}: sums of "
                "neighbours' features are those of a gcn"
            )
            raise about("hops", ValueError(text))

    def network(
        self,
        whole: Graph,
        parts: Sequence[Tensor],
        seed: int,
        more: Mapping[str, Any] | None = None,
    ) -> tuple[Graph, list[Graph], nn.Module, int]:
        """The inputs (whole graph, clients' graphs), the network, and the number of bytes sent.

        Args:
            whole: the graph that is cut.
            parts: one tensor per client with the ids of the client's nodes.
            seed: seed for the initial parameters and for the choice of missing and corrupted data.
            more: options of the network.
        """
        alone = len(parts) == 1 and parts[0].numel() == whole.num_nodes
        clients, sent = [whole] if alone else data.partitions.partition_graph(whole, parts), 0
        if self.hops:
            clients, whole, sent = data.neighbour_sums(whole, parts, hops=self.hops)
            reject_if(
                replace(self.damage, label_noise=0, missing_labels=0).any,
                "edges and features to be whole beside hops, whose sums know those of all clients",
                self.damage,
            )
        clients = self.read(self.damaged(clients, seed))
        model = self.model_for(whole, seed, more)
        return with_structure(whole) if self.model == "star" else whole, clients, model, sent

    def read(self, clients: Sequence[Graph]) -> list[Graph]:
        """Add structural encodings to the clients' graphs if the network reads such encodings."""
        return [with_structure(own) if self.model == "star" else own for own in clients]

    def model_for(
        self, graph: Graph, seed: int, more: Mapping[str, Any] | None = None
    ) -> nn.Module:
        """The network for graphs with as many features and classes as the given graph.

        The given graph does not contain structural encodings.
        """
        options: dict[str, Any] = {"dropout": self.dropout, **(more or {})}
        if self.hops:
            options |= {"normalize": False, "summed": True}
        sizes = graph.num_features, self.hidden, graph.num_classes
        model: nn.Module = self.seeded(seed, MODELS[self.model], *sizes, **options)
        return model
