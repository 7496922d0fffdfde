"""Forecasts of a series on a graph; the nodes of this graph are divided among clients."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from .. import data
from ..checks import Count, Share, reject_if
from ..data.traffic import traffic
from ..graph import Graph
from ..sparse import gather_rows, sum_rows
from ..targets import FORECAST
from .nodes import node_task
from .settings import Cut, setting
from .task import Local, Task


class Forecaster(nn.Module):
    """Two linear layers; the input is a window of a node's features and its neighbours' features.

    ``out_v = W2 relu(W1 [x_v, m_v])``, where m_v is the weighted mean over the edges that end at v,
    computed separately for each time. If an edge has a time, the edge is used only at this time.
    """

    def __init__(self, num_features: int, hidden: int, *, steps: int, num_horizons: int) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * steps * num_features, hidden)
        self.outer = nn.Linear(hidden, num_horizons)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_time: Tensor | None = None,
        window_index: Tensor | None = None,
    ) -> Tensor:
        """``[windows, steps, num_nodes, num_features]`` to ``[windows, num_nodes, horizons]``."""
        source, target = edge_index
        weight = x.new_ones(source.shape) if edge_weight is None else edge_weight
        if edge_time is not None and window_index is not None:
            weight = weight * (window_index[:, :, None] == edge_time)  # [windows, steps, edges]
        weight = weight.expand(*x.shape[:2], -1).permute(2, 0, 1)[..., None]
        nodes = x.permute(2, 0, 1, 3)  # [num_nodes, windows, steps, num_features]
        total = sum_rows(weight, target, len(nodes))
        mean = sum_rows(gather_rows(nodes, source) * weight, target, len(nodes))
        mean = mean / torch.where(total > 0, total, 1.0)
        both = torch.cat([nodes, mean], 3).transpose(0, 1).flatten(2)
        out: Tensor = self.outer(self.inner(both).relu())
        return out


@setting
class Forecast(Cut):
    """Forecasts of a series, such as traffic or numbers of cases.

    Every client has a part of the nodes.

    The earliest windows are for training, later windows for validation, and the latest windows for
    the test. Every client is scored on its own nodes. Scores have the units of the series.

    Example:
        >>> task = Forecast(clients=3, hidden=8).load(seed=0)
        >>> task.select, sum(graph.num_nodes for graph in task.clients)
        ('-val_mae', 24)
    """

    partition: Literal["louvain", "louvain_igraph", "leiden", "metis", "ldg", "random"] = "ldg"
    """The division of nodes: a balanced cut (ldg, or metis), communities, or at random."""
    window: Count = 12
    """Number of times in a window."""
    horizons: tuple[int, ...] = (3, 6, 12)
    """Distances of the predicted times from a window's last time."""
    scaled: bool = True
    """Whether each client standardises the network's input by its own training times."""
    batch_size: Count = 64
    """Windows per step."""
    hidden: Count = 64
    dropout: Share = 0.0
    local: Local = Local("adam", lr=0.01, weight_decay=0.0, steps=1)

    published: ClassVar[dict[str, dict[str, Any]]] = {
        "england_covid": {"window": 7, "horizons": (1, 3)}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_all_train()
        by = self.skew.skew_by
        reject_if(by != "nothing", "skew_by to be nothing for Forecast, which has no classes", by)
        reject_if(self.damage.any, "Forecast to be without damage", self.damage)
        expected = "dropout to be 0 for Forecast, whose network has none"
        reject_if(self.dropout, expected, self.dropout)

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the partition and the initial model.
        """
        whole = traffic(24, 1500) if self.dataset == "synthetic" else data.load(self.dataset)
        whole = whole.to(self.device)
        parts = self.cut(whole, seed)
        clients = [self.windows(own) for own in data.partitions.partition_graph(whole, parts)]
        how = {"steps": self.window, "num_horizons": len(self.horizons)}
        model = self.seeded(seed, Forecaster, whole.num_features, self.hidden, **how)
        train = self.local.minibatches(self.batch_size)
        task = node_task(None, clients, model, train, target=FORECAST)
        return replace(task, whole=self.windows(whole))

    def windows(self, graph: Graph) -> Graph:
        """The windows of one client's series."""
        how: dict[str, Any] = {"horizons": self.horizons, "scaled": self.scaled}
        return data.splits.windows(graph, self.window, **how)
