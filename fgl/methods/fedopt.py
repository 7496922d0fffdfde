"""FedOpt: the server takes an optimiser's step towards the clients' mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from .. import federation as fed
from ..aggregate import server_step
from ..checks import Weight, check_number
from ..federation import Means, Method, Outbox, State


@fed.layer
def fedopt(
    fedavg: Method,
    *,
    rule: Literal["sgd", "adam", "yogi", "adagrad"] = "sgd",
    server_lr: Weight = 0.5,
    momentum: Weight | None = None,
    beta2: float = 0.99,
    tau: Weight = 1e-3,
    weight_decay: Weight = 0.0,
    bias_correction: bool = False,
    anew: bool = False,
) -> Method:
    """FedAvg whose server takes an optimiser step on ``D = mean - theta`` (FedOpt, Algorithm 2).

    The model's buffers, such as the statistics of a batch norm, are no parameters: they become the
    mean. (Steps past it would make a variance negative.)

    Args:
        fedavg: its mean is the target; it must send everybody the same model.
        rule: the optimiser; ``"sgd"`` without momentum is damped FedAvg.
        server_lr: its learning rate, at least 0.
        momentum: decay of the first moment; default 0 with ``"sgd"``, else 0.9.
        beta2: decay of the second moment, in [0, 1); torch's Adam has 0.999.
        tau: adaptivity, Adam's epsilon, at least 0.
        weight_decay: what of theta is taken off D, at least 0.
        bias_correction: of the moments of ``"adam"``, as in Adam's own paper.
        anew: whether the moments start anew in each round.

    Raises:
        ValueError: if a rate is out of range or the rule unknown, or `fedavg` is a `gcfl`; when
            called, if the server sends no common model.

    Example:
        >>> fedopt(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), rule="adam", server_lr=0.01)
        fedopt(fedavg(GCN(...), ...), rule='adam', server_lr=0.01, ...)

    Source: Reddi et al. 2021, https://arxiv.org/abs/2003.00295
    """
    if momentum is None:
        momentum = 0.0 if rule == "sgd" else 0.9
    check_number("beta2", beta2, at_least=0, below=1)
    if bias_correction and rule != "adam":
        raise ValueError(f"Expected rule to be adam with bias_correction, but got {rule!r}")
    reason = "a cluster that splits has no common model to step towards: write gcfl(fedopt(...))"
    fed.refuse(fedavg, ("gcfl", "gcfl_plus"), "fedopt", reason)
    fed.refuse(fedavg, "opfgl", "fedopt", "its clients send sums, and no model")
    fed.refuse(fedavg, "fedopt", "fedopt", "both would keep their moments under one name")
    how: Any = {"rule": rule, "lr": server_lr, "beta1": momentum, "beta2": beta2, "tau": tau}
    how["bias_correction"] = bias_correction
    buffers = {name for name, _ in fedavg.model.named_buffers()}

    def optimize(outbox: Outbox, new: State, means: Means, state: State) -> tuple[Outbox, State]:
        if not outbox:
            return outbox, state
        target = outbox[next(iter(outbox))]["model"]
        if any(message["model"] is not target for message in outbox.values()):
            raise ValueError(
                "Expected the server to send everybody the same model, but got one for each"
            )
        names = () if anew else ("m", "v", "t")
        moments: Any = {key: state[key] for key in names if key in state}
        before = state["model"]
        # what travels, at first the whole model
        old = {name: before[name] for name in target if name not in buffers}
        decayed = {name: target[name] - weight_decay * old[name] for name in old}
        stepped, moments = server_step(old, decayed if weight_decay else target, moments, **how)
        model = {**target, **stepped}
        messages = fed.changed_messages(outbox, lambda message: {**message, "model": model})
        return messages, {**new, "model": model, **moments}

    return replace(fedavg, aggregate=fed.after(fedavg.aggregate, optimize))
