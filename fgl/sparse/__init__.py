"""Sparse matrices: products with gradients to values and operands, sums and softmax over rows.

Inside `vmap` a stack of them multiplies as one block-diagonal matrix.
"""

from .batched_matrix import MatrixStack
from .batched_pattern import Member
from .gather import add_rows, below_each_other, gather_rows, sum_rows
from .matrix import SparseMatrix, rows_of
from .pattern import Pattern
from .precision import full_precision
from .product import sampled_product, weighted_product
from .rows import pair_sum, row_log_softmax, row_softmax, row_sum, widened

__all__ = [
    "MatrixStack",
    "Member",
    "Pattern",
    "SparseMatrix",
    "add_rows",
    "below_each_other",
    "full_precision",
    "gather_rows",
    "pair_sum",
    "row_log_softmax",
    "row_softmax",
    "row_sum",
    "rows_of",
    "sampled_product",
    "sum_rows",
    "weighted_product",
    "widened",
]
