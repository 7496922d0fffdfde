"""Sparse matrices: products with gradients to values and operands, sums and softmax over rows.

Inside `vmap` a stack of them multiplies as one block-diagonal matrix.
"""

from .batched_matrix import MatrixStack
from .batched_pattern import Member
from .matrix import SparseMatrix, rows_of
from .pattern import Pattern
from .product import sampled_product, weighted_product
from .rows import row_log_softmax, row_softmax, row_sum, widened

__all__ = [
    "MatrixStack",
    "Member",
    "Pattern",
    "SparseMatrix",
    "row_log_softmax",
    "row_softmax",
    "row_sum",
    "rows_of",
    "sampled_product",
    "weighted_product",
    "widened",
]
