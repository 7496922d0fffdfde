"""Replays: recorded operations as a Python function, without a `torch.fx` module's look-ups."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg


def compiled(module: GraphModule) -> Callable[..., Any]:
    """A function that does what a recorded module does; tensors are freed after their last use.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> compiled(make_fx(lambda x: (x + 1) * x)(torch.ones(2)))(torch.tensor([2.0, 3.0]))
        tensor([ 6., 12.])
    """
    known: dict[str, Any] = {}  # operations and constants, by their names in the function
    inputs, lines = [], []
    last = _last_uses(module)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "get_attr":
            known[node.name] = getattr(module, node.target)
        elif node.op == "output":
            lines.append(f"return {_text(node.args[0], known)}")
        elif node.users or node.target is not operator.getitem:
            freed = "".join(f"; {each.name} = None" for each in last.get(node, ()))
            lines.append(f"{node.name} = {_call(node, known)}{freed}")
    source = f"def replay({', '.join(inputs)}):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, "<replay>", "exec"), known)
    replay: Callable[..., Any] = known["replay"]
    return replay


def _call(node: Node, known: dict[str, Any]) -> str:
    if node.target is operator.getitem:
        return f"{_text(node.args[0], known)}[{_text(node.args[1], known)}]"
    target: Any = node.target
    known[f"call_{node.name}"] = target._op if isinstance(target, OpOverload) else target
    words = [_text(arg, known) for arg in node.args]
    words += [f"{name}={_text(arg, known)}" for name, arg in node.kwargs.items()]
    return f"call_{node.name}({', '.join(words)})"


def _text(arg: Any, known: dict[str, Any]) -> str:
    """An argument in the function's source."""
    if isinstance(arg, Node):
        return arg.name
    if isinstance(arg, (list, tuple)) and _has_nodes(arg):
        return f"[{', '.join(_text(each, known) for each in arg)}]"
    known[name := f"constant_{len(known)}"] = arg
    return name


def _has_nodes(arg: Any) -> bool:
    nodes: list[Node] = []
    map_arg(arg, nodes.append)
    return bool(nodes)


def _last_uses(module: GraphModule) -> dict[Node, list[Node]]:
    """The values that are not needed after an operation."""
    last: dict[Node, Node] = {}
    for node in module.graph.nodes:
        for arg in node.all_input_nodes:
            last[arg] = node
    freed: dict[Node, list[Node]] = {}
    for value, node in last.items():
        if value.op == "call_function" and node.op == "call_function":
            freed.setdefault(node, []).append(value)
    return freed
