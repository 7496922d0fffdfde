"""Pseudo labels and a pseudo graph that a server computes from clients' predictions (FedGL)."""

from .client_parts import part_of, unpacked
from .fusion import fuse, fuse_uploads, label_loss, pseudo_labels
from .graph import augmented_operator, pseudo_graph
from .quality import quality_of
from .uploads import ROWS, nodes_of, upload_check

__all__ = [
    "ROWS",
    "augmented_operator",
    "fuse",
    "fuse_uploads",
    "label_loss",
    "nodes_of",
    "part_of",
    "pseudo_graph",
    "pseudo_labels",
    "quality_of",
    "unpacked",
    "upload_check",
]
