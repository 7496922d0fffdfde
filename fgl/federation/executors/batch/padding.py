"""The check of padding: a client's loss must be the same in a batch and outside a batch."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from ....predict import reads, stand_in
from ....seeds import set_seed
from ...method.message import Params, leaves
from ...method.rules import Ragged
from ...training.train import in_mode, trainable
from .cohort import ONE_BY_ONE, Cohort
from .steps import View

GROUP = "edges of clients"  # and their numbers: a group whose clients were all compared


def check_padding(
    view: View, params: Sequence[Params], left: Sequence[int], checked: set[str]
) -> None:
    """Check that padding does not change clients' losses.

    For each kind of padding, the client with the most padding of this kind is checked. This
    client's loss in the batch is compared with its loss outside the batch, in evaluation mode. If
    the model has a module that comes neither from torch nor from fgl, the losses are also compared
    in training mode without dropout. Two checks are stricter if the model reads `edge_index`: the
    losses of all clients are compared, and a gradient that is finite outside the batch must be
    finite in the batch.

    Args:
        view: the current step.
        params: each client's initial parameters.
        left: positions in the cohort of the clients that take this step. The other clients have
            finished their local steps.
        checked: the kinds of padding that earlier calls checked. The kind ``"nodes"`` means padded
            nodes. The kind ``"context/pairs"`` means the padding of a `Ragged` at the path
            ``pairs`` in the context. After the call, `checked` also contains the kinds of padding
            that this call has checked.

    Raises:
        ValueError: if padding changes the loss of a client, and the loss uses no random numbers.
    """
    if not view.is_new:
        return
    for kind, client in _padded(view.cohort, view.contexts, left).items():
        if kind not in checked:
            _compare(view, params[client], [client])
            checked.add(kind)
    if not reads(stand_in(view.method.model)).edge_index:
        return
    group = f"{GROUP} {view.cohort.clients}"
    if group not in checked:  # PyG's or own code: compare every client, padded or not
        _compare(view, params[left[0]], left)
        _check_gradients(view, params[left[0]], left)
        checked |= {group, "edges"}
    elif "edges" not in checked:  # a term that began later
        fewest = min(left, key=lambda client: view.cohort.graphs[client].num_edges)
        _compare(view, params[fewest], [fewest])
        checked.add("edges")


def _padded(cohort: Cohort, contexts: Sequence[Any], left: Sequence[int]) -> dict[str, int]:
    """For each kind of padding in a batch: the client with the most padding of this kind.

    Clients that do not take the current step are ignored.
    """
    sizes = {"nodes": [graph.num_nodes for graph in cohort.graphs]}
    if cohort.graphs[0].edge_label_index is not None or cohort.graphs[0].has("window_index"):
        sizes["examples"] = [graph.num_examples for graph in cohort.graphs]
    shared = all(context is contexts[0] for context in contexts)  # then no client is padded
    for context in () if shared else contexts:
        for path, value in leaves(context if isinstance(context, Mapping) else {"": context}):
            if isinstance(value, Ragged):
                sizes.setdefault(f"context/{path}", []).append(len(value))
    sizes = {kind: each for kind, each in sizes.items() if len(each) == len(contexts)}
    smallest = {kind: min(left, key=each.__getitem__) for kind, each in sizes.items()}
    return {kind: k for kind, k in smallest.items() if sizes[kind][k] < max(sizes[kind])}


def _compare(view: View, start: Params, clients: Sequence[int]) -> None:
    """Compare losses in evaluation mode, and in training mode too if a module is the user's own."""
    modules = stand_in(view.method.model).modules()
    familiar = all(type(module).__module__.split(".")[0] in ("torch", "fgl") for module in modules)
    for training in (False,) if familiar else (False, True):
        _compare_in(training, view, start, clients)


def _compare_in(training: bool, view: View, start: Params, clients: Sequence[int]) -> None:
    """Compare losses at perturbed parameters, or at the given parameters if losses are not finite.

    The parameters are perturbed, since zero biases can give outputs of 0 at padded nodes. If these
    outputs are 0, the comparison misses a loss that adds up the outputs of padded nodes.
    """
    names = trainable(view.method)

    def both(at: Params) -> tuple[Params, Tensor, Tensor]:
        """The parameters, the clients' losses outside the batch, and their losses in the batch."""
        ones = [_alone(view, at, client) for client in clients]
        set_seed(0)
        losses = _whole(view).losses(_stacks(view, at))
        return at, torch.stack(ones), losses[list(clients)]

    kind = view.cohort.graphs[0].device.type
    exact = torch.autocast(kind, enabled=False)  # half precision differs by more than these errors
    with _aside(view, training), torch.no_grad(), exact:
        perturbed = {name: _beside(p) if name in names else p for name, p in start.items()}
        nearby = None
        with contextlib.suppress(Exception):  # a loss need not be defined there
            nearby = both(perturbed)
        if nearby is None or not nearby[1].isfinite().all():
            nearby = both(start)
        at, ones, padded = nearby
        for client, one, other in zip(clients, ones, padded, strict=True):
            rtol = max(1e-4, 4 * torch.finfo(one.dtype).eps)
            if torch.allclose(other, one, rtol=rtol, atol=1e-5, equal_nan=True):
                continue
            if not one.isnan() and not torch.equal(one, _alone(view, at, client, seed=1)):
                continue  # a loss that draws
            raise ValueError(
                "Expected the model and the loss to leave padding out (no training mask has padded "
                "nodes; weigh by graph.node_mask, and by the mask of what is Ragged), but got "
                f"{float(other):.6g} instead of {float(one):.6g} for client "
                f"{view.cohort.clients[client]} in a batch{ONE_BY_ONE}"
            )


def _check_gradients(view: View, start: Params, clients: Sequence[int]) -> None:
    """Raise an error if a client's gradient is finite outside the batch but not in the batch.

    A masked mean is 0 / 0, which is NaN, if all of its entries are padding. Even if the loss leaves
    this mean out, the backward pass multiplies a gradient of 0 by NaN, and the client's gradient
    becomes NaN.
    """
    names = trainable(view.method)
    with _aside(view):
        stacks = _stacks(view, start)
        leaves_ = [value.requires_grad_() for name, value in stacks.items() if name in names]
        losses = _whole(view).losses(stacks)
        if not losses.requires_grad:
            return
        grads = torch.autograd.grad(losses.sum(), leaves_, allow_unused=True)
        rows = [grad.flatten(1) for grad in grads if grad is not None]
        finite = torch.cat(rows, 1).isfinite().all(1)
        for client in clients:
            if finite[client]:
                continue
            own = {n: v.detach().clone().requires_grad_(n in names) for n, v in start.items()}
            alone = _alone(view, own, client)
            trained = [value for value in own.values() if value.requires_grad]
            mine = torch.autograd.grad(alone, trained, allow_unused=True)
            if all(g.isfinite().all() for g in mine if g is not None):
                raise ValueError(
                    "Expected the model's gradient to be finite in a batch as it is alone, but got "
                    f"NaN or infinity for client {view.cohort.clients[client]}: what is padded may "
                    f"be divided by 0{ONE_BY_ONE}"
                )


@contextlib.contextmanager
def _aside(view: View, training: bool = False) -> Iterator[None]:
    """A context that switches torch's dropout off; at its end, torch's random state is restored."""
    device = view.cohort.graphs[0].device
    devices = [device] if device.type == "cuda" else []
    model = stand_in(view.method.model)
    with in_mode(model, False), torch.random.fork_rng(devices):
        for module in model.modules():
            module.training = training and not isinstance(module, (_DropoutNd, _NormBase))
        set_seed(0)
        yield


def _alone(view: View, at: Params, client: int, seed: int = 0) -> Tensor:
    """The loss of one client, computed outside a batch.

    Changes to buffers are discarded.
    """
    set_seed(seed)
    at = {name: value if value.requires_grad else value.clone() for name, value in at.items()}
    return view.method.loss(at, view.cohort.graphs[client], view.contexts[client])


def _whole(view: View) -> View:
    """Return a `View` of the same cohort for a step on all training examples of the clients."""
    return View(view.method, view.layout).at(view.cohort, view.contexts, None)


def _stacks(view: View, at: Params) -> Params:
    """Stack a copy of the parameters for each client, as the layout of the batch requires."""
    return {
        name: value.detach().expand(len(view.cohort), *value.shape).clone()
        for name, value in view.layout.turn(at).items()
    }


def _beside(value: Tensor) -> Tensor:
    """A copy of a tensor, in which each entry is increased by a random number.

    The random number is between 0 and 0.1 times the mean magnitude of the entries. If all entries
    are 0, the random number is between 0 and 0.1.
    """
    size = value.abs().mean()
    return value + 0.1 * torch.rand_like(value) * torch.where(size > 0, size, 1)
