"""Structure distillation: the student learns the teacher's similarities between neighbours."""

from torch import Tensor

from ..checks import check_length, check_number, reject_if
from ..sparse import SparseMatrix, row_log_softmax, row_sum, sampled_product
from ..sparse.rows import widened
from .weighted_mean import weighted_mean


def structure_distillation(
    student: Tensor,
    teacher: Tensor,
    edges: Tensor | SparseMatrix,
    *,
    temperature: float = 5.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Distil each node's similarities to its neighbours from teacher to student (FGSSL, Eq. 9-12).

    ``S_i(j) = softmax_{j in A_i}(z_i . z_j / temperature)`` for both models, and ``loss = mean_i
    KL(S_i^teacher || S_i^student)`` over the nodes that have a neighbour. The running time is
    proportional to ``num_edges * num_classes``, and the extra memory is proportional to
    `num_edges`. No tensor of size N x N is built.

    Args:
        student: logits ``[num_nodes, num_classes]`` of the model being trained.
        teacher: the teacher's logits, in the shape of `student`; usually without a gradient.
        edges: ``edge_index`` int64 ``[2, num_edges]`` or a `SparseMatrix` ``A[target, source]``;
            every edge makes its source a neighbour of its target, even if the edge's value is 0.
            Self-loops are treated as neighbours; for the paper's loss, pass a graph without
            self-loops.
        temperature: the paper's omega.
        mask: bool ``[num_nodes]``, the nodes to average over; by default all nodes.

    Returns:
        A scalar: the loss. If no node has a neighbour, the loss and its gradient are 0.

    Raises:
        ValueError: if shapes do not match, or if the temperature is not positive.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> edges = torch.tensor([[0, 1, 2, 2], [2, 2, 0, 1]])
        >>> structure_distillation(z, z, edges)
        tensor(0.)

    Source: Huang et al., IJCAI 2023, https://doi.org/10.24963/ijcai.2023/426
    """
    expected = f"teacher to have the student's shape {list(student.shape)} [num_nodes, num_classes]"
    reject_if(student.dim() != 2 or student.shape != teacher.shape, expected, list(teacher.shape))
    check_length(len(student), mask=mask)
    check_number("temperature", temperature, above=0)
    if not isinstance(edges, SparseMatrix):
        edges = SparseMatrix.from_edge_index(edges, student.shape[0])
    want = f"edges to join {student.shape[0]} nodes"
    reject_if(edges.shape != (student.shape[0], student.shape[0]), want, edges.shape)
    pattern = edges.pattern
    dtype, student, teacher = student.dtype, widened(student), widened(teacher)
    ours = row_log_softmax(pattern, sampled_product(pattern, student, student) / temperature)
    theirs = row_log_softmax(pattern, sampled_product(pattern, teacher, teacher) / temperature)
    divergence = row_sum(pattern, theirs.exp() * (theirs - ours))
    weight = pattern.crow.diff() > 0
    weight = weight * mask if mask is not None else weight
    return weighted_mean(divergence, weight).to(dtype)
