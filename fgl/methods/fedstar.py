"""FedStar: clients average the structure channel, and keep their own feature channels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..checks import reject_if
from ..federation import Message, Method, Params, State, layer
from ..graph import Graph
from ..nn import Star
from ..personalize import part
from .fedper import fedper
from .own_models import check_drawable, drawn


@layer
def fedstar(fedavg: Method, *, shared: Sequence[str] = Star.STRUCTURE, draw: bool = True) -> Method:
    """Average the structure channel; each client keeps its own feature channel (FedStar).

    In its first round, every client initialises its own feature channel. A client predicts with its
    own feature channel and the received structure channel. In the authors' code, each client keeps
    its Adam state between rounds (``Training(keep_optimizer=True)``). Here `fedavg` determines
    whether the state is kept.

    Args:
        fedavg: FedAvg built for a task. The task's model is a `fgl.nn.Star`, or another model that
            has the modules in `shared`.
        shared: names of the modules that clients send.
        draw: if true, each client initialises the modules that are not in `shared`; if false, all
            clients start from the common model.

    Raises:
        TypeError: if `shared` is a string, or if a module cannot be re-initialised (see `drawn`).
        ValueError: if the model lacks a module in `shared`, or if `shared` is empty.

    Example:
        >>> method = fedstar(fgl.fedavg(fgl.nn.Star(4, 8, 2, num_layers=1)))
        >>> graph = fgl.Graph(torch.rand(3, 36), torch.tensor([[0], [1]]))
        >>> params, context = method.receive({"model": method.initial()}, {}, graph)
        >>> list(method.send(params, context, {}, graph)[0]["model"])
        ['structure_pre.weight', 'structure_pre.bias', 'structure_convs.0.bias',
         'structure_convs.0.lin.weight']

    Source: Tan et al. 2023, https://arxiv.org/abs/2211.13009; yuetan031/FedStar
    """
    wrong = shared == Star.STRUCTURE and not hasattr(fedavg.model, "structure_pre")
    want = "the model to have a structure channel, as fgl.nn.Star has (model='star' in a task)"
    reject_if(wrong, want, type(fedavg.model).__name__)
    method = fedper(fedavg, shared=shared)
    if draw:
        check_drawable(fedavg.model, but=shared)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        if draw and "model" not in state:
            own = drawn(fedavg.model, but=shared)
            message = {**message, "model": {**own, **part(message["model"], *shared)}}
        return method.receive(message, state, graph)

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        whole = method.receive(message, state, graph)[0]
        return fedavg.deploy({**message, "model": whole}, state, graph)

    return replace(method, receive=receive, deploy=deploy)
