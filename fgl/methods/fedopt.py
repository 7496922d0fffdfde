"""FedOpt: the server takes an optimiser step towards the mean of the clients' models."""

from dataclasses import replace
from typing import Any, Literal

from .. import federation as fed
from ..aggregate import server_step
from ..checks import Weight, check_number, reject_if
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
    """FedAvg with a server that takes an optimiser step on ``D = mean - theta`` (FedOpt, Alg. 2).

    Buffers of the model, such as a batch norm's statistics, are not parameters. The server takes no
    optimiser step on buffers, but sets them to the clients' mean: a step beyond the mean could make
    a variance negative.

    Args:
        fedavg: FedAvg built for a task; the server must send one model to all clients. From this
            sent model, the optimiser takes a step towards the mean that the server of `fedavg`
            computes.
        rule: the optimiser. The rule ``"sgd"`` without momentum is FedAvg with a damped step.
        server_lr: the optimiser's learning rate, at least 0.
        momentum: decay of the first moment. The default is 0 for ``"sgd"``, and 0.9 for all other
            rules.
        beta2: decay of the second moment, at least 0 and below 1; torch's Adam uses 0.999.
        tau: the paper's degree of adaptivity, which Adam calls epsilon; at least 0. The default is
            that of the authors' code and of Flower. If D is much smaller than `tau`, as after one
            SGD step per client, the server's step is not adaptive: tune `tau` with `server_lr`.
        weight_decay: a factor, at least 0; the optimiser gets D minus this factor times theta.
        bias_correction: whether to correct the bias of the moments of ``"adam"``, as in Adam's
            paper.
        anew: whether the moments are reset in each round.

    Raises:
        ValueError: if a rate is out of range, if the rule is unknown, or if bias correction is
            requested for a rule other than ``"adam"``. A ValueError is also raised if the given
            method already uses GCFL, GCFL+, O-pFGL or FedOpt. The method's server raises a
            ValueError if clients get different models.

    Example:
        >>> fedopt(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), rule="adam", server_lr=0.01)
        fedopt(fedavg(GCN(...), ...), rule='adam', server_lr=0.01, ...)

    Source: Reddi et al. 2021, https://arxiv.org/abs/2003.00295
    """
    if momentum is None:
        momentum = 0.0 if rule == "sgd" else 0.9
    check_number("beta2", beta2, at_least=0, below=1)
    other_rule = bias_correction and rule != "adam"
    reject_if(other_rule, "rule to be adam with bias_correction", repr(rule))
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
        several = any(message["model"] is not target for message in outbox.values())
        reject_if(several, "the server to send everybody the same model", "one for each")
        moments: Any = fed.pick(state, () if anew else ("m", "v", "t"))
        before = state["model"]
        # the sent part; at first the whole model
        old = {name: before[name] for name in target if name not in buffers}
        decayed = {name: target[name] - weight_decay * old[name] for name in old}
        stepped, moments = server_step(old, decayed if weight_decay else target, moments, **how)
        model = {**target, **stepped}
        messages = fed.changed_messages(outbox, lambda message: {**message, "model": model})
        return messages, {**new, "model": model, **moments}

    return replace(fedavg, aggregate=fed.after(fedavg.aggregate, optimize))
