"""Checks of arguments: numbers and their bounds, choices, lengths, devices and disk access."""

import difflib
import importlib
import math
import numbers
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, TypeVar

import torch
from torch import Tensor

E = TypeVar("E", bound=Exception)
SPLIT = ": fgl.data.splits.random_split(graph) makes masks"  # the end of some errors

if getattr(sys.modules["fgl"], "__file__", None) is None:  # Python imports any folder
    raise ImportError(
        f"Expected fgl to be the package that is installed at {__file__.removesuffix('checks.py')},"
        f" but got the folder {next(iter(sys.modules['fgl'].__path__))}, whose name hides it: "
        "start Python elsewhere, or give that folder another name"
    )


def reject_if(wrong: Any, expected: str, got: Any, error: type[Exception] = ValueError) -> None:
    """Raise ``Expected <expected>, but got <got>`` if a condition is true.

    Args:
        wrong: the condition.
        expected: text such as "mask to be bool".
        got: the value, or a text that describes it.
        error: class of the error.

    Example:
        >>> reject_if(torch.ones(2).dim() != 1, "y to have shape [n]", [2])
        >>> reject_if(torch.ones(2, 1).dim() != 1, "y to have shape [n]", [2, 1])
        Traceback (most recent call last):
        ValueError: Expected y to have shape [n], but got [2, 1]
    """
    if wrong:
        raise error(f"Expected {expected}, but got {got}")


def about(argument: str, error: E) -> E:
    """Store the invalid argument's name in an error and return the error.

    The command line uses the name to report the invalid flag.

    Example:
        >>> vars(about("mu", ValueError("Expected mu to be positive, but got -1")))
        {'argument': 'mu'}
    """
    vars(error)["argument"] = argument
    return error


def check_number(
    name: str,
    value: Any,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
    integer: bool = False,
) -> None:
    """Raise an error unless a value is a finite number between the bounds.

    Args:
        name: the value's name in the error's text.
        value: the value; a bool does not count as a number.
        at_least, above, at_most, below: the bounds. The values `above` and `below` are excluded.
        integer: whether the value must be an integer; 3.0 does not count as an integer.

    Raises:
        TypeError: if `value` is not a number, or if `integer` is True but `value` is not an
            integer.
        ValueError: if `value` is out of bounds, infinite or NaN.

    Example:
        >>> check_number("mu", 0.1, at_least=0)
        >>> check_number("mu", float("nan"), at_least=0)
        Traceback (most recent call last):
        ValueError: Expected mu to be a number >= 0, but got nan
        >>> check_number("rounds", -1, at_least=0, integer=True)
        Traceback (most recent call last):
        ValueError: Expected rounds to be an integer >= 0, but got -1
    """
    ends = ((">=", at_least), (">", above), ("<=", at_most), ("<", below))
    limits = " and ".join(f"{sign} {end}" for sign, end in ends if math.isfinite(end))
    expected = f"Expected {name} to be {'an integer' if integer else 'a number'} {limits}".rstrip()
    kind = numbers.Integral if integer else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind):
        raise about(name, TypeError(f"{expected}, but got {value!r}"))
    number = float(value)
    inside = at_least <= number <= at_most and above < number < below
    if not (inside and math.isfinite(number)):
        raise about(name, ValueError(f"{expected}, but got {value}"))


class Bound(partial[None]):
    """A check for annotations of parameters; ``help`` shows its bounds, such as ``at_least=0``.

    Example:
        >>> Bound(check_number, at_least=0)
        at_least=0
    """

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.keywords.items())


# Numbers with bounds: `fgl.kinds.typed` and `fgl.layer` read them from a function's annotations.
Weight = Annotated[float, Bound(check_number, at_least=0)]
Positive = Annotated[float, Bound(check_number, above=0)]
Share = Annotated[float, Bound(check_number, at_least=0, at_most=1)]
PositiveShare = Annotated[float, Bound(check_number, above=0, at_most=1)]
Chance = Annotated[float, Bound(check_number, above=0, below=1)]
Natural = Annotated[int, Bound(check_number, at_least=0, integer=True)]
Count = Annotated[int, Bound(check_number, at_least=1, integer=True)]
Several = Annotated[int, Bound(check_number, at_least=2, integer=True)]


def check_weight(**values: Any) -> None:
    """Raise an error unless each value is a finite number of at least 0.

    Args:
        values: values by name.

    Raises:
        TypeError, ValueError: see `check_number`.

    Example:
        >>> check_weight(alpha=0.2, beta=-1)
        Traceback (most recent call last):
        ValueError: Expected beta to be a number >= 0, but got -1
    """
    for name, value in values.items():
        check_number(name, value, at_least=0)


def check_share(**values: Any) -> None:
    """Raise an error unless each value is a number from 0 to 1.

    Args:
        values: values by name.

    Raises:
        TypeError, ValueError: see `check_number`.

    Example:
        >>> check_share(rho=1.5)
        Traceback (most recent call last):
        ValueError: Expected rho to be a number >= 0 and <= 1, but got 1.5
    """
    for name, value in values.items():
        check_number(name, value, at_least=0, at_most=1)


def check_count(**values: Any) -> None:
    """Raise an error unless each value is an integer of at least 1.

    Args:
        values: values by name.

    Raises:
        TypeError, ValueError: see `check_number`.

    Example:
        >>> check_count(clients=0)
        Traceback (most recent call last):
        ValueError: Expected clients to be an integer >= 1, but got 0
    """
    for name, value in values.items():
        check_number(name, value, at_least=1, integer=True)


def check_fanouts(fanouts: Any, *, unlimited: bool = False) -> tuple[int, ...]:
    """Return fan-outs as a tuple.

    Raise an error unless each fan-out is a positive integer (or -1 if `unlimited`).

    Raises:
        TypeError: if an entry is not an integer.
        ValueError: if an integer is 0 or negative (except an allowed -1), or if there are no
            entries.

    Example:
        >>> check_fanouts([10, -1], unlimited=True)
        (10, -1)
    """
    if not isinstance(fanouts, Sequence) or not fanouts:
        raise ValueError(f"Expected fanouts to be a sequence of at least one, but got {fanouts}")
    if not all(type(fanout) is int for fanout in fanouts):
        raise TypeError(f"Expected fanouts to be integers, but got {tuple(fanouts)}")
    if not all(fanout >= 1 or (unlimited and fanout == -1) for fanout in fanouts):
        least = "at least 1, or -1 for all" if unlimited else "at least 1"
        raise ValueError(f"Expected fanouts to be {least}, but got {tuple(fanouts)}")
    return tuple(fanouts)


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raise an error unless a value is one of the choices.

    Args:
        name: the name of the value in the error's text.
        value: the value.
        choices: the valid values.

    Raises:
        ValueError: if `value` is not one of the choices.

    Example:
        >>> check_choice("optimizer", "sgd", ("sgd", "adam"))
        >>> check_choice("optimizer", "lion", ("sgd", "adam"))
        Traceback (most recent call last):
        ValueError: Expected optimizer to be one of 'sgd', 'adam', but got 'lion'
    """
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        text = f"Expected {name} to be one of {listed}, but got {value!r}"
        raise about(name, ValueError(text + did_you_mean(value, choices)))


def did_you_mean(value: Any, choices: Iterable[Any]) -> str:
    """End of an error message that suggests the most similar choice; empty if no choice is similar.

    Example:
        >>> did_you_mean("Cora", ["cora", "citeseer"])
        ": did you mean 'cora'?"
    """
    held_out = "val_" in str(value)  # a validation metric is never replaced by a test metric
    names = {
        str(choice).lower(): choice
        for choice in choices
        if not (held_out and "test_" in str(choice))
    }
    nearest = difflib.get_close_matches(str(value).lower(), names, n=1, cutoff=0.7)
    return f": did you mean {names[nearest[0]]!r}?" if nearest else ""


def check_classes(logits: Tensor, classes: int | None = None) -> None:
    """Raise an error if `logits` has fewer than `classes` columns, or fewer than two columns.

    With only one column, each row would predict class 0, and the cross-entropy would be 0.

    Example:
        >>> check_classes(torch.zeros(3, 1))
        Traceback (most recent call last):
        ValueError: Expected logits to have shape [num_nodes, num_classes] of 2 classes or more,
            but got [3, 1]: fgl.targets.ANSWERS takes one logit, and y as floats 0 and 1
    """
    shape = list(logits.shape)
    least = max(classes or 0, 2)
    way = ": fgl.targets.ANSWERS takes one logit, and y as floats 0 and 1"
    expected = f"logits to have shape [num_nodes, num_classes] of {least} classes or more"
    fewer = len(shape) != 2 or shape[1] < least
    reject_if(fewer, expected, f"{shape}{way if shape[-1:] == [1] else ''}")


def check_length(length: int, **tensors: torch.Tensor | None) -> None:
    """Raise an error unless each tensor has the given number of rows.

    Args:
        length: the number of rows.
        tensors: tensors by name; a value of None is not checked.

    Raises:
        ValueError: if a tensor has a different number of rows; the error names the first such
            tensor.

    Example:
        >>> check_length(3, y=torch.zeros(3), mask=None)
        >>> check_length(3, y=torch.zeros(2))
        Traceback (most recent call last):
        ValueError: Expected y to have shape [3], but got [2]
    """
    for name, value in tensors.items():
        if value is not None and value.shape != (length,):
            got = list(value.shape)
            raise ValueError(f"Expected {name} to have shape [{length}], but got {got}")


def check_mask(name: str, mask: Any, length: int) -> None:
    """Raise an error unless a mask is a bool tensor with the given number of rows.

    Raises:
        TypeError: if the dtype is not bool.
        ValueError: if the number of rows is wrong.

    Example:
        >>> check_mask("mask", torch.ones(2), 2)
        Traceback (most recent call last):
        TypeError: Expected mask to be a bool tensor, but got torch.float32: mask.bool()
    """
    if not isinstance(mask, Tensor):
        got = type(mask).__name__
        raise TypeError(f"Expected {name} to be a bool tensor, but got {got}: torch.tensor(...)")
    if mask.dtype != torch.bool:
        flags = mask.shape == (length,) and bool(((mask == 0) | (mask == 1)).all())
        of_ids = f"torch.zeros({length}, dtype=torch.bool).index_fill(0, {name}, True) for ids"
        way = f"{name}.bool()" if flags else of_ids
        raise TypeError(f"Expected {name} to be a bool tensor, but got {mask.dtype}: {way}")
    check_length(length, **{name: mask})


def check_index(
    name: str, index: Any, shape: tuple[int | None, ...], bound: int | None, hint: str = ""
) -> None:
    """Raise an error unless `index` is int64, has this shape and is in ``[0, bound)``.

    An entry None in `shape` allows any size of that dimension.

    `hint` is appended to the error about a negative index.

    Example:
        >>> check_index("edge_index", torch.tensor([[0], [2]]), (2, None), 2)
        Traceback (most recent call last):
        ValueError: Expected edge_index to be in [0, 2), but got 2
    """
    if not isinstance(index, Tensor) or index.dtype != torch.int64:
        got = index.dtype if isinstance(index, Tensor) else type(index).__name__
        ways = {torch.bool: ": mask.nonzero()[:, 0]", "list": f": torch.tensor({name})"}
        raise TypeError(f"Expected {name} to be an int64 tensor, but got {got}{ways.get(got, '')}")
    if not has_shape(index, shape):
        want = ", ".join("*" if size is None else str(size) for size in shape)
        turned = f": {name}.t()" if has_shape(index.mT if index.dim() > 1 else index, shape) else ""
        got = f"{list(index.shape)}{turned}"
        raise ValueError(f"Expected {name} to have shape [{want}], but got {got}")
    if index.numel():
        _check_range(name, index, bound, hint)


def has_shape(value: Any, shape: tuple[int | None, ...]) -> bool:
    """Whether a tensor or an array has this shape; an entry None in `shape` allows any size.

    Example:
        >>> has_shape(torch.ones(2, 5), (2, None))
        True
    """
    return len(value.shape) == len(shape) and all(
        want in (None, size) for want, size in zip(shape, value.shape, strict=True)
    )


def _check_range(name: str, index: Tensor, bound: int | None, hint: str) -> None:
    low, high = torch.stack(index.aminmax()).tolist()
    if low < 0 or (bound is not None and high >= bound):
        limit = "at least 0" if bound is None else f"in [0, {bound})"
        got = f"{low}{hint}" if low < 0 else str(high)
        raise ValueError(f"Expected {name} to be {limit}, but got {got}")


def check_like(
    name: str, tensors: Mapping[str, torch.Tensor], like: Mapping[str, torch.Tensor]
) -> None:
    """Raise an error unless a dict has each tensor of another dict, in the same shape.

    Example:
        >>> check_like("target", {}, {"bias": torch.zeros(2)})
        Traceback (most recent call last):
        ValueError: Expected target['bias'] to have shape [2], but got no such tensor
    """
    for key, value in like.items():
        got = list(tensors[key].shape) if key in tensors else "no such tensor"
        shape = list(value.shape)
        reject_if(got != shape, f"{name}[{key!r}] to have shape {shape}", got)


def check_device(device: Any) -> None:
    """Raise an error unless this computer has the device and torch can compute on it.

    Args:
        device: torch's name of the device, such as ``"cpu"`` or ``"cuda:1"``.

    Raises:
        ValueError: if the name is unknown, or if this computer or this build of torch does not
            support the device.

    Example:
        >>> check_device("cpu")
        >>> check_device("cud")
        Traceback (most recent call last):
        ValueError: Expected device to be one that torch has here, but got 'cud' (...
    """
    try:
        torch.zeros(1, device=device).item()
    except (AssertionError, RuntimeError, TypeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        text = f"Expected device to be one that torch has here, but got {device!r} ({reason})"
        raise about("device", ValueError(text)) from None


def check_rows(name: str, rows: Tensor, shape: str = "k, *") -> None:
    """Raise an error unless `rows` is a finite floating-point matrix; the error names the client.

    Args:
        name: the name of the matrix in the error's text.
        rows: one row per client.
        shape: the expected shape in the error's text. With ``"k, k"`` the matrix must be square.

    Example:
        >>> check_rows("flat", torch.tensor([[1.0], [float("nan")]]))
        Traceback (most recent call last):
        ValueError: Expected flat to be finite, but got NaN or infinity in client 1's row
    """
    reject_if(not rows.is_floating_point(), f"{name} to be floating point", rows.dtype, TypeError)
    if rows.dim() != 2 or (shape == "k, k" and rows.shape[0] != rows.shape[1]):
        raise ValueError(f"Expected {name} to have shape [{shape}], but got {list(rows.shape)}")
    if not torch.isfinite(rows.sum()):  # not certain: the sum of finite rows may overflow
        bad = ~torch.isfinite(rows).all(1)
        if bad.any():
            client = int(bad.nonzero()[0])
            raise ValueError(
                f"Expected {name} to be finite, but got NaN or infinity in client {client}'s row"
            )


def check_kind(name: str, value: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> None:
    """Raise an error if a tensor that will be read has an unexpected dtype, shape or layout.

    Raises:
        ValueError: if the dtype, the shape or the layout is unexpected. The error gives the
            expected dtype and shape.

    Example:
        >>> check_kind("sent", torch.tensor([2]), torch.bool, [1])
        Traceback (most recent call last):
        ValueError: Expected sent to be torch.bool of shape [1], but got torch.int64 [1]
    """
    reject_if(
        value.dtype != dtype or value.shape != torch.Size(shape) or value.layout != torch.strided,
        f"{name} to be {dtype} of shape {list(shape)}",
        f"{value.dtype} {list(value.shape)}",
    )


@contextmanager
def check_disk(wanted: str, hint: str = "") -> Iterator[None]:
    """A context that rewrites the message of an OSError as "Expected ..., but got ...".

    Args:
        wanted: the text after "Expected", such as "a.json to be written".
        hint: text at the end of the message.

    Raises:
        OSError: if the code inside the context raises an OSError.

    Example:
        >>> with check_disk("a.json to be written"):
        ...     raise OSError(28, "No space left")
        Traceback (most recent call last):
        OSError: Expected a.json to be written, but got [Errno 28] No space left
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(f"Expected {wanted}, but got {error}{hint}") from error


def as_columns(
    output: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """An output and its labels; both get the shape ``[n, t]``, with one column per task.

    For a single task the inputs may have the shape ``[n]``. The shapes must be equal, since torch
    would broadcast ``[n]`` and ``[n, 1]`` to ``[n, n]``.

    Args:
        output: float ``[n]``, ``[n, 1]`` or ``[n, t]``.
        y: float ``[n]`` or ``[n, t]``.
        mask: ``[n]``, of any dtype; only its length is checked.

    Raises:
        TypeError: if `y` is not floating point.
        ValueError: if the shapes do not match each other.

    Example:
        >>> [each.shape for each in as_columns(torch.zeros(3, 1), torch.zeros(3))]
        [torch.Size([3, 1]), torch.Size([3, 1])]
        >>> as_columns(torch.zeros(3, 2), torch.zeros(3))
        Traceback (most recent call last):
        ValueError: Expected output to have shape [3] or [3, 1] as y has [3], but got [3, 2]
    """
    if not y.is_floating_point():
        raise TypeError(f"Expected y to be floating point, but got {y.dtype}: call .float()")
    reject_if(y.dim() not in (1, 2), "y to have shape [n] or [n, t]", list(y.shape))
    n = y.shape[0]
    check_length(n, mask=mask)
    t = 1 if y.dim() == 1 else y.shape[1]
    fitting = ([n], [n, 1]) if t == 1 else ([n, t],)
    if list(output.shape) not in fitting:
        shapes = " or ".join(map(str, fitting))
        raise ValueError(
            f"Expected output to have shape {shapes} as y has {list(y.shape)}, "
            f"but got {list(output.shape)}"
        )
    return output.reshape(n, t), y.reshape(n, t)


def install(extra: str) -> str:
    """The command that installs an extra, for errors about a missing package.

    Example:
        >>> install("private")
        "pip install -e '.[private]' in a checkout of fgl"
    """
    return f"pip install -e '.[{extra}]' in a checkout of fgl"


def imported(module: str, purpose: str, how: str, package: str = "") -> Any:
    """Import an optional module; if it is missing, an error gives the command that installs it.

    Args:
        module: the module.
        purpose: purpose of the module, such as "for a plot".
        how: the command that installs the package.
        package: the package's name in the error's text; by default the first part of the module's
            name.

    Example:
        >>> imported("nothing_of_this_name", "for a test", "pip install it")
        Traceback (most recent call last):
        ImportError: Expected nothing_of_this_name to be installed for a test, but got none: ...
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = package or module.partition(".")[0]
        raise ImportError(
            f"Expected {name} to be installed {purpose}, but got none: {how}"
        ) from error
