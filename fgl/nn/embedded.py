"""Embeddings from any model: a chosen layer's input is the embedding."""

from typing import Any

from torch import Tensor, nn

from ..checks import reject_if


class Embedded(nn.Module):
    """A wrapper that adds the argument ``return_embedding=True``, which MOON and FGSSL need.

    Args:
        model: any module; its parameters get the prefix ``"model."``.
        before: name of a submodule of `model`; the submodule's input is the embedding.

    Returns:
        The model's output. With ``return_embedding=True``, a pair: the output and the embedding.

    Raises:
        ValueError: if the model has no submodule called `before`. A call raises a ValueError if the
            model did not use the submodule.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        >>> out, embedding = Embedded(model, before="1")(torch.ones(3, 4), return_embedding=True)
        >>> out.shape, embedding.shape
        (torch.Size([3, 2]), torch.Size([3, 8]))
    """

    def __init__(self, model: nn.Module, before: str) -> None:
        super().__init__()
        names = [name for name, _ in model.named_modules() if name]
        reject_if(before not in names, f"before to be one of {names}", repr(before))
        self.model = model
        self.before = before

    @property
    def reads_like(self) -> nn.Module:
        """The wrapped model; the arguments of its `forward` determine the graph fields to read."""
        return self.model

    def forward(self, *args: Any, return_embedding: bool = False, **kwargs: Any) -> Any:
        if not return_embedding:
            return self.model(*args, **kwargs)
        embeddings: list[Tensor] = []

        def note(module: nn.Module, inputs: Any) -> None:
            embeddings.append(inputs[0])

        hook = self.model.get_submodule(self.before).register_forward_pre_hook(note)
        try:
            out = self.model(*args, **kwargs)
        finally:
            hook.remove()
        if not embeddings:
            raise ValueError(f"Expected the model to call {self.before!r}, but it did not")
        return out, embeddings[-1]
