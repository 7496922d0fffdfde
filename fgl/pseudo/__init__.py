"""Pseudo labels and a pseudo graph that a server makes of its clients' predictions (FedGL)."""

from .client_parts import part_of, unpacked
from .fusion import FILLS, fuse, fuse_uploads, label_loss, pseudo_labels
from .graph import (
    augmented_operator,
    edge_tensors,
    from_edge_tensors,
    project,
    pseudo_graph,
)
from .quality import describe, quality_of
from .uploads import ROWS, check_node_rows, check_upload, nodes_of, upload_check

__all__ = [
    "FILLS",
    "ROWS",
    "augmented_operator",
    "check_node_rows",
    "check_upload",
    "describe",
    "edge_tensors",
    "from_edge_tensors",
    "fuse",
    "fuse_uploads",
    "label_loss",
    "nodes_of",
    "part_of",
    "project",
    "pseudo_graph",
    "pseudo_labels",
    "quality_of",
    "unpacked",
    "upload_check",
]
