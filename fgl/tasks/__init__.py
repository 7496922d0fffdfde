"""Tasks: the data of the clients, the model with its loss, and the scores."""

from .adapted import adapted
from .ego_nodes import EgoNodes, ego_node_task
from .forecast import Forecast
from .graphs import Graphs, graph_task
from .links import Links, link_task
from .mended import generator_task, mended
from .molecules import Molecules
from .nodes import Nodes, node_task
from .overlapping_nodes import OverlappingNodes, overlapping_node_task
from .own_nodes import OwnNodes, own_node_task
from .pairs import Pairs, pair_task
from .presets import fedgcn, fedsage, preset
from .ranking import ranking
from .sampled_nodes import SampledNodes, sampled_node_task
from .scores import evaluate_graphs, evaluate_own, evaluate_pooled, link_scores, node_scores
from .structure import with_spectrum, with_structure
from .subgraph_nodes import SubgraphNodes, subgraph_node_task
from .task import Local, Task, centralized, earlier
from .typed_nodes import TypedNodes
from .unseen import with_unseen

__all__ = [
    "EgoNodes",
    "Forecast",
    "Graphs",
    "Links",
    "Local",
    "Molecules",
    "Nodes",
    "OverlappingNodes",
    "OwnNodes",
    "Pairs",
    "SampledNodes",
    "SubgraphNodes",
    "Task",
    "TypedNodes",
    "adapted",
    "centralized",
    "earlier",
    "ego_node_task",
    "evaluate_graphs",
    "evaluate_own",
    "evaluate_pooled",
    "fedgcn",
    "fedsage",
    "generator_task",
    "graph_task",
    "link_scores",
    "link_task",
    "mended",
    "node_scores",
    "node_task",
    "overlapping_node_task",
    "own_node_task",
    "pair_task",
    "preset",
    "ranking",
    "sampled_node_task",
    "subgraph_node_task",
    "with_spectrum",
    "with_structure",
    "with_unseen",
]
