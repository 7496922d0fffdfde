"""Old names of the fields of a method: they work for one more release, with a warning."""

import functools
from dataclasses import replace
from typing import Any, TypeVar

from ...kinds import explained
from ...warn import warn
from .rules import Own, Privacy, Rules

T = TypeVar("T")

GROUPS = {"rules": Rules, "privacy": Privacy, "own": Own}
OLD_NAMES = {
    **dict.fromkeys(("exchange", "participants", "silent", "ragged"), "rules"),
    **dict.fromkeys(("max_examples", "max_change", "joining"), "rules"),
    **dict.fromkeys(("costs", "onward", "account"), "privacy"),
    **dict.fromkeys(("models", "personal"), "own"),
}


def takes_old_names(cls: type[T]) -> type[T]:
    """Make old names of fields work in the class `Method`, as arguments and as attributes.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     method = replace(fgl.fedavg(torch.nn.Linear(1, 1)), exchange=3)
        ...     method.exchange, method.rules.exchange
        (3, 3)
    """
    changed: Any = cls
    init = changed.__init__

    @functools.wraps(init)
    def with_old_names(self: Any, *args: Any, **new: Any) -> None:
        old = {name: new.pop(name) for name in OLD_NAMES if name in new}
        if not isinstance(new.get("own", Own()), Own):
            _warn("own", "modules")
            new["own"] = Own(new["own"])
        for group in {OLD_NAMES[name] for name in old}:
            own = {name: value for name, value in old.items() if OLD_NAMES[name] == group}
            for name in own:
                _warn(group, name)  # points at the caller of `replace`
            new[group] = replace(new.get(group, GROUPS[group]()), **own)
        init(self, *args, **new)

    changed.__init__ = explained(with_old_names)
    for name, group in OLD_NAMES.items():
        setattr(cls, name, property(functools.partial(_read, name=name, group=group)))
    for name in ("__iter__", "__len__", "__contains__"):
        setattr(Own, name, functools.partialmethod(_as_modules, name))
    return cls


def _as_modules(own: Own, name: str, *args: Any) -> Any:
    """Apply an operation of collections, such as ``len``, to the names in ``method.own.modules``.

    In earlier versions, `Method.own` itself was this collection of module names.
    """
    _warn("own", "modules")
    return getattr(list(own.modules), name)(*args)


def _read(method: Any, name: str, group: str) -> Any:
    _warn(group, name)
    return getattr(getattr(method, group), name)


def _warn(group: str, name: str) -> None:
    old = "own" if name == "modules" else name
    warn(
        f"Method.{old} is Method.{group}.{name} now; to change it, write "
        f"replace(method, {group}=replace(method.{group}, {name}=...))",
        DeprecationWarning,
    )
