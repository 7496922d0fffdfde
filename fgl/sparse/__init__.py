"""Sparse matrices: differentiable products, row sums and row softmaxes.

Inside `vmap`, a stack of sparse matrices is multiplied as one block-diagonal matrix.
"""

from .gather import gather_rows, sum_rows
from .matrix import SparseMatrix as SparseMatrix
from .product import sampled_product, weighted_product
from .rows import row_log_softmax, row_softmax, row_sum

__all__ = [
    "gather_rows",
    "row_log_softmax",
    "row_softmax",
    "row_sum",
    "sampled_product",
    "sum_rows",
    "weighted_product",
]
