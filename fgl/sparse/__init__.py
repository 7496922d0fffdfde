"""Sparse matrices: CSR products with gradients to values and operands, row softmax."""

from .matrix import SparseMatrix
from .matrix_stack import MatrixStack
from .pattern import Pattern
from .product import sampled_product, weighted_product
from .rows import row_log_softmax, row_softmax, row_sum
from .stack import Client

__all__ = [
    "Client",
    "MatrixStack",
    "Pattern",
    "SparseMatrix",
    "row_log_softmax",
    "row_softmax",
    "row_sum",
    "sampled_product",
    "weighted_product",
]
