"""GraphFL: each client adapts the model by a few gradient steps on its own data (MAML)."""

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .. import federation as fed
from ..checks import Natural, Weight, reject_if
from ..federation import Message, Method, Params, Ragged, State
from ..graph import Graph
from ..seeds import drawing_from

Query = Literal["half", "all", "validation"]
EXAMPLES = "train_mask"  # the name of the examples that a loss reads from the graph's mask


@fed.layer(checks=[fed.check_model_alone, fed.check_one_architecture])
def graphfl(
    fedavg: Method,
    *,
    adapt_steps: Natural = 10,
    adapt_lr: Weight = 0.01,
    query: Query = "half",
    second_order: bool = False,
    equal: bool = True,
) -> Method:
    """Train a model that clients adapt: minimise ``L_query(theta - a grad L_support - ...)``.

    Each local step of the task is an episode. In an episode, a client first adapts the model: it
    takes `adapt_steps` gradient descent steps on the client's support set. Then the client returns
    to the original model, and the local optimiser changes this model by one step. The step uses the
    gradient of the adapted model's loss on the query set (MAML; GraphFL, Algorithm 1). For
    predictions, a client adapts the model to all its training examples, in evaluation mode. If the
    task samples minibatches, every adaptation for predictions uses the same sequence of
    minibatches.

    In the public code, each round creates a new Adam with weight decay for the step on the query
    set. To take the same step here, give the task one local step of SGD with a learning rate of 1,
    and use ``fedopt(graphfl(...), rule="adam", server_lr=0.02, beta2=0.999, tau=1e-8,
    weight_decay=5e-4, bias_correction=True, anew=True)``. In the public code, clients then
    fine-tune the new model, and the next round starts from the mean of the fine-tuned models. Here
    the next round starts from the model before fine-tuning. The reason is that training makes the
    model before fine-tuning easy to adapt. A mean of fine-tuned models need not be easy to adapt.

    Args:
        fedavg: FedAvg built for a task. Each adaptation step is a gradient step on the loss of
            `fedavg`.
        adapt_steps: number of adaptation steps, at least 0. With 0, the method is `fedavg` on the
            query set.
        adapt_lr: learning rate a of the adaptation, at least 0.
        query: name of the rule that selects the support set and the query set. ``"half"``: in each
            step, a new random half of the examples is the support set, and the other half is the
            query set. ``"all"``: both sets contain all examples of the step. ``"validation"``: the
            training nodes are the support set, and the validation nodes are the query set. Since
            clients then train on the validation nodes, validation scores are scores on training
            data.
        second_order: if true, the gradient also flows through the gradients of the adaptation, as
            in MAML. If false, the step uses the gradient of the query loss with respect to the
            adapted model, as in the public code.
        equal: if true, all clients that have examples get the same weight, as in the public code;
            if false, `fedavg` determines each client's weight in the mean.

    Raises:
        ValueError: if a number is out of range, if `query` is unknown, if the model has a batch
            norm with running statistics, or if clients train tensors outside the model. With
            ``"validation"``, the method's functions raise a ValueError if there is no validation
            mask, or if a step has examples other than the graph's nodes.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 0, 1]))
        >>> method = graphfl(fgl.fedavg(fgl.nn.GCN(4, 8, 2)))
        >>> seen, context = next(iter(method.train.batches(graph, {})))
        >>> int(context["support"]["train_mask"].values.sum())
        2

    Source: Wang et al. 2022, https://arxiv.org/abs/2012.04187; binghuiwang/GraphFL; Finn et
    al. 2017, MAML, https://arxiv.org/abs/1703.03400
    """
    _check_model(fedavg)
    names = fed.trainable(fedavg)
    support_of, query_of, marked = SETS[query]

    def step(params: Params, graph: Graph, context: Any) -> Params:
        """Take one gradient descent step."""
        fixed, free = fed.drop(params, names), fed.pick(params, names)
        grads = torch.func.grad(lambda own: fedavg.loss({**fixed, **own}, graph, context))(free)
        if not second_order:
            grads = fed.combine(Tensor.detach, grads)
        return {**fixed, **fed.combine(lambda value, grad: value - adapt_lr * grad, free, grads)}

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        for batch, extra in fed.local_steps(fedavg.train, graph, context):
            yield batch, marked(batch, context, extra)

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        support = support_of(graph, context)
        for _ in range(adapt_steps):
            params = step(params, *support)
        return fedavg.loss(params, *query_of(graph, context))

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        examples: Any = message["num_examples"]
        return {**message, "num_examples": (examples > 0).long()}, new_state

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        params = fedavg.deploy(message, state, graph)
        start, context = fedavg.receive(message, state, graph)
        context = {**context, "start": start}  # as in a round
        with drawing_from(0, graph.device):  # the same minibatches in every call
            steps = fed.local_steps(fedavg.train, graph, context)
            with fed.in_mode(fedavg.model, False):
                for index in range(adapt_steps if steps else 0):
                    params = step(params, *steps[index % len(steps)])
        return fed.combine(Tensor.detach, params)

    train = replace(fedavg.train, num_steps=None, batches=batches)
    method = replace(fedavg, loss=loss, deploy=deploy, train=train)
    if not equal:
        return method
    rules = replace(method.rules, max_examples=min(1, fedavg.rules.max_examples))
    return replace(method, send=send, rules=rules)


def _check_model(fedavg: Method) -> None:
    """Raise an error if a batch norm has running statistics, which each adaptation would change."""
    kind, modules = nn.modules.batchnorm._BatchNorm, fedavg.model.named_modules()
    counting = [n for n, own in modules if isinstance(own, kind) and own.track_running_stats]
    want = "no batch norm with running statistics, which an adaptation would count in each step"
    reject_if(counting, f"the model to have {want}", counting)


def halves(graph: Graph, context: Any) -> dict[str, Ragged]:
    """Split a step's examples, and all `Ragged` entries of its context, into random halves.

    The halves are sampled with torch's global generator. If the number of examples is odd, the
    query set has one more example than the support set.

    Returns:
        A dict of masks of the support set. The keys are ``"train_mask"`` and the names of the
        `Ragged` entries.

    Example:
        >>> graph = fgl.Graph(torch.ones(5, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> {name: int(half.values.sum()) for name, half in halves(graph, {}).items()}
        {'train_mask': 2}
    """
    masks = {EXAMPLES: graph.training_mask}
    masks |= {name: value.mask for name, value in context.items() if isinstance(value, Ragged)}
    return {name: Ragged(half_of(mask)) for name, mask in masks.items()}


def half_of(mask: Tensor) -> Tensor:
    """A random half of a mask's entries, rounded down."""
    inside = mask.nonzero().squeeze(1)
    order = torch.randperm(inside.numel()).to(mask.device)
    chosen = inside[order[: inside.numel() // 2]]
    return torch.zeros_like(mask).index_fill(0, chosen, True)


def with_halves(graph: Graph, before: Any, context: Any) -> dict[str, Any]:
    """Add the support set from `halves` to a step's context."""
    return {**context, "support": halves(graph, context)}


def side(graph: Graph, context: Any, of_support: bool) -> tuple[Graph, Mapping[str, Any]]:
    """A step's graph and context, restricted to the support set or to the query set."""

    def part(mask: Tensor, name: str) -> Tensor:
        chosen: Tensor = context["support"][name].values
        return mask & (chosen if of_support else ~chosen)

    names = fed.drop(context["support"], [EXAMPLES])
    changed = {n: Ragged(context[n].values, part(context[n].mask, n)) for n in names}
    return fed.with_train_mask(graph, part(graph.training_mask, EXAMPLES)), ChainMap(
        changed, context
    )


def all_of_it(graph: Graph, context: Any) -> tuple[Graph, Any]:
    """A step's graph and context with all training examples."""
    return graph, context


def validation_nodes(graph: Graph, context: Any) -> tuple[Graph, Any]:
    """A step's graph and context, with validation nodes in place of training nodes."""
    return fed.with_train_mask(graph, graph.val_mask), context  # type: ignore[arg-type]


def with_validation(graph: Graph, before: Any, context: Any) -> Any:
    """The context of a step.

    Raise a ValueError unless the step's loss sees the validation nodes.
    """
    reject_if(graph.val_mask is None, "graph to have a validation mask to query", "none")
    fresh = [k for k, v in context.items() if isinstance(v, Ragged) and before.get(k) is not v]
    reject_if(fresh, f"query to be half or all where a step brings {fresh}", "validation")
    return context


# Support set, query set and context of each step.
SETS: dict[Query, tuple[Any, Any, Any]] = {
    "half": (partial(side, of_support=True), partial(side, of_support=False), with_halves),
    "all": (all_of_it, all_of_it, lambda graph, before, context: context),
    "validation": (all_of_it, validation_nodes, with_validation),
}
