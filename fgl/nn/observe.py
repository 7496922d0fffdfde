"""Recording of a model's outputs and embeddings while a loss calls the model."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from ..checks import about
from ..kinds import explained


class Seen(NamedTuple):
    """The output and the embedding that a model returned in one call.

    Example:
        >>> Seen(torch.zeros(3, 2), torch.zeros(3, 8)).embedding.shape
        torch.Size([3, 8])
    """

    output: Tensor
    embedding: Tensor


def gives_embeddings(model: nn.Module) -> bool:
    """Whether a model accepts the argument ``return_embedding=True``.

    Example:
        >>> gives_embeddings(fgl.nn.GCN(4, 8, 2)), gives_embeddings(torch.nn.Linear(4, 2))
        (True, False)
    """
    return "return_embedding" in inspect.signature(model.forward).parameters


@explained
@contextmanager
def observed(model: nn.Module) -> Iterator[list[Seen]]:
    """A context that collects the output and the embedding of every call of a model.

    A term that is added to a loss can reuse the collected results. The term then uses the dropout
    and the noise of the loss's own forward pass, and needs no second forward pass.

    Args:
        model: returns ``output, embedding, ...`` if called with ``return_embedding=True``.

    Returns:
        A list to which every call of the model appends one `Seen`.

    Raises:
        TypeError: if the model does not take ``return_embedding``.

    Example:
        >>> model = fgl.nn.GCN(4, 8, 2)
        >>> with observed(model) as seen:
        ...     logits = model(torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]]))
        >>> seen[-1].output is logits, seen[-1].embedding.shape
        (True, torch.Size([3, 8]))
    """
    if not gives_embeddings(model):
        got = type(model).__name__
        cure = 'fgl.nn.Embedded(model, before="convs.1") takes it, for the input of a layer'
        text = f"Expected the model to take return_embedding=True, but got {got}: {cure}"
        raise about("model", TypeError(text))
    passes: list[Seen] = []
    with_embedding: list[bool] = []

    def ask(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        with_embedding.append(kwargs.get("return_embedding", False))
        return args, {**kwargs, "return_embedding": True}

    def note(module: nn.Module, args: Any, output: Any) -> Any:
        passes.append(Seen(output[0], output[1]))
        return output if with_embedding.pop() else output[0]

    hooks = [
        model.register_forward_pre_hook(ask, with_kwargs=True),
        model.register_forward_hook(note, prepend=True),  # nested observers: last added runs first
    ]
    try:
        yield passes
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def outputs(model: nn.Module) -> Iterator[list[Any]]:
    """A context that collects the results of all calls of a model.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> with outputs(model) as seen:
        ...     made = model(torch.ones(3, 2))
        >>> seen[0] is made
        True
    """
    passes: list[Any] = []
    hook = model.register_forward_hook(lambda module, args, output: passes.append(output))
    try:
        yield passes
    finally:
        hook.remove()
