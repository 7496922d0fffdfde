"""Pseudo labels and a pseudo graph that a server makes of its clients' predictions (FedGL)."""

from .client_parts import part_of, unpacked
from .fusion import fuse, fuse_uploads, label_loss, pseudo_labels
from .graph import augmented_operator, project, pseudo_graph
from .quality import describe, quality_of
from .uploads import ROWS, nodes_of, upload_check

__all__ = [
    "ROWS",
    "augmented_operator",
    "describe",
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
