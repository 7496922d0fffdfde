"""Pairs of methods that are refused: made of each other, one would not do what it says."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from .inbox import Inbox
from .message import Message
from .method import Method

CLUSTERS = "clusters"
CONTROL = "control variates"
MASKED = "masked uploads"
PASSES = "passes over the steps"


def refuse(method: Method, trait: str, outer: str, why: str) -> None:
    """Raise if a method, or one that it is made of, has a trait that `outer` cannot do with.

    Args:
        method: what `outer` is given.
        trait: one of `Method.traits`.
        outer: the name of the method that asks.
        why: what would go wrong, as a clause.

    Raises:
        ValueError: if the method has the trait.

    Example:
        >>> from fgl.methods import scaffold
        >>> refuse(scaffold(fgl.fedavg(torch.nn.Linear(1, 1))), CONTROL, "gcfl", "it is so")
        Traceback (most recent call last):
        ValueError: Expected gcfl to be given a method without control variates, but got ...
    """
    if trait in method.traits:
        raise ValueError(
            f"Expected {outer} to be given a method without {trait}, but got one with them: {why}"
        )


def check_model_alone(method: Method, outer: str) -> None:
    """Raise if clients train more than the model, such as masks, which `outer` would lose.

    Args:
        method: what `outer` is given.
        outer: the name of the method that asks.

    Raises:
        ValueError: if something is personal.

    Example:
        >>> method = replace(fgl.fedavg(torch.nn.Linear(1, 1)), personal={"mask": torch.ones(1)})
        >>> check_model_alone(method, "local")
        Traceback (most recent call last):
        ValueError: Expected local to be given a method that trains the model alone, but got ...
    """
    if method.personal:
        raise ValueError(
            f"Expected {outer} to be given a method that trains the model alone, but got "
            f"{next(iter(method.personal))!r} and its like besides: put that method around {outer}"
        )


def sealed(method: Method, by: str, *names: str) -> Method:
    """The method, around which no other may change these functions: a run would raise.

    Args:
        method: what a transform made.
        by: the transform's name.
        names: of fields of the method.

    Example:
        >>> method = sealed(fgl.fedavg(torch.nn.Linear(1, 1)), "clipped", "send")
        >>> check_seals(method)
    """
    return replace(method, seals={**method.seals, **{n: (by, getattr(method, n)) for n in names}})


def check_seals(method: Method) -> None:
    """Raise if a method was put around a transform that covers nothing but what it made itself.

    Raises:
        ValueError: naming the transform, and which functions are others.

    Example:
        >>> from fgl.methods import fedopt
        >>> from fgl.transforms import clipped
        >>> check_seals(fedopt(clipped(fgl.fedavg(torch.nn.Linear(1, 1)), length=1.0)))
        Traceback (most recent call last):
        ValueError: Expected clipped to be the outermost wrapper, but got a method around it whose
            aggregate is another, and would undo or bypass what it does: write ...
    """
    other: dict[str, list[str]] = {}
    for name, (by, made) in method.seals.items():
        if getattr(method, name) is not made:
            other.setdefault(by, []).append(name)
    for by, names in other.items():
        verb = "is another" if len(names) == 1 else "are others"
        raise ValueError(
            f"Expected {by} to be the outermost wrapper, but got a method around it whose "
            f"{' and '.join(names)} {verb}, and would undo or bypass what it does: write "
            f"{by}(method(...)) instead"
        )


def check_averages(method: Method, outer: str) -> None:
    """Raise unless a method's server does what FedAvg's does: its work would be lost in `outer`.

    It is asked: of two clients' models, of one and of three examples, both shall get the mean.

    Args:
        method: what `outer` is given.
        outer: the name of the method that replaces the server's work by its own.

    Raises:
        ValueError: if they get anything else, or the server asks for more than that.

    Example:
        >>> from fgl.methods import fedopt
        >>> check_averages(fedopt(fgl.fedavg(torch.nn.Linear(1, 1))), "fedamp")
        Traceback (most recent call last):
        ValueError: Expected fedamp to be given a method whose server sends the clients' mean, ...
    """
    if not _averages(method):
        raise ValueError(
            f"Expected {outer} to be given a method whose server sends the clients' mean, as "
            f"FedAvg's does, but got another, whose work would be lost: {outer} has a server of "
            "its own"
        )


@torch.no_grad()
def _averages(method: Method) -> bool:
    initial = method.initial()
    numbers = [value for value in initial.values() if value.is_floating_point()]
    if not numbers:
        return True
    name = next(key for key, value in initial.items() if value.is_floating_point())
    shape = initial[name]
    came: dict[int, Message] = {
        client: {
            "model": {name: torch.full_like(shape, value)},
            "num_examples": torch.tensor(count),
        }
        for client, (value, count) in enumerate(((0.0, 1), (4.0, 3)))
    }
    try:
        with torch.random.fork_rng([]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outbox, _ = method.aggregate(Inbox(came, 2), {})
            found: list[Tensor] = [outbox[k]["model"][name] for k in came]  # type: ignore[index]
    except Exception:  # whatever a server misses that is not FedAvg's
        return False
    return all(torch.allclose(each.float(), torch.full_like(each, 3.0).float()) for each in found)
