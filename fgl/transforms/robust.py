"""A robust mean that replaces the mean of the models in a method's server."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..aggregate.robust import TooManyBad, bucket_means
from ..checks import Count, reject_if
from ..federation import Inbox, Message, Method, OfMeans, Outbox, Params, State, layer, one_for_all
from ..kinds import check_takes
from ..warn import warn

Rule = Callable[[Mapping[str, Tensor]], Params]
WITH_SUMS = {
    "central_gaussian": "for noise inside a secure sum, write fgl.transforms.summed_gaussian("
    "method, threshold=..., length=..., noise_multiplier=...)",
    "robust": "a robust mean reads each client's update, and a secure sum hides it: choose one",
}


@layer
def robust(
    method: Method, rule: Rule, *, bucket: Count = 1, untouched: Collection[str] = ()
) -> Method:
    """Replace the mean of updates by a robust mean, to limit the influence of hostile clients.

    In place of the mean of the models, the server reads the sent model plus ``rule(updates)``. All
    rules ignore the clients' weights. A client's number of examples matters only in one way: a
    client with 0 examples is left out. So a false number does not increase the client's influence.
    Each rule also has disadvantages when no client is hostile; the rule's docstring states them.

    Args:
        method: the method. The method's `aggregate` must be a `fgl.federation.OfMeans`, as in
            FedAvg. The server may process the mean further, as in FedOpt.
        rule: ``updates -> update``. The argument is a dict of tensors ``[K, ...]`` with the updates
            of all K clients that have examples. The result is a dict of tensors ``[...]``. For
            example: ``partial(fgl.aggregate.robust.trimmed_mean, bad=1)``.
        bucket: number of clients per bucket. Clients are put into random buckets, and the rule gets
            the mean of each bucket. The means of honest buckets differ less from each other than
            single honest updates do. But buckets reduce the number of the rule's inputs, so each
            hostile client affects a larger fraction of the inputs.
        untouched: keys of all entries of an upload that the server reads in addition to
            ``"model"``. These keys are named in `OfMeans.equally` or `OfMeans.reads`. The rule does
            not change these entries, so hostile clients can influence them.

    Returns:
        The method. If a round has too few clients for the rule, all clients keep the old model, and
        a warning says so.

    Raises:
        ValueError: if `bucket` is not positive, if the server reads the whole inbox, or if the
            server reads an entry other than the model and the entries in `untouched`. The method's
            server raises a ValueError if clients received different models, or if the rule rejects
            a round although all clients take part.
        TypeError: if `rule` is not a function, or if `untouched` is a single string.

    Example:
        >>> method = robust(fgl.fedavg(torch.nn.Linear(1, 1)), fgl.aggregate.robust.median)
        >>> sent = dict.fromkeys(range(3), {"model": {"w": torch.tensor(1.0)}})
        >>> came = {
        ...     k: {"model": {"w": torch.tensor(w)}, "num_examples": torch.tensor(5)}
        ...     for k, w in enumerate((2.0, 3.0, 1e9))
        ... }
        >>> method.aggregate(fgl.federation.Inbox(came, 3, sent), {})[0][0]
        {'model': {'w': tensor(3.)}}
    """
    check_takes("rule", rule, ["updates"])
    served = mean_server(method, "robust")
    _check_covered(served, untouched)

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        counted = {k: message for k, message in inbox.items() if _counts(message)}
        if not counted:
            return served.serve_model(None, inbox, state)
        counting = Inbox(counted, inbox.num_clients, inbox.sent)
        updates = counting.changes("model")
        common = one_for_all([inbox.sent[client]["model"] for client in counting], "model")
        try:
            update = rule(bucket_means(updates, size=bucket))
        except TooManyBad as error:
            if len(counting) == inbox.num_clients:
                raise
            warn(f"{error}: everybody keeps the old model")
            return {}, state
        return served.serve_model(
            {name: common[name] + update[name] for name in updates}, inbox, state
        )

    return replace(method, aggregate=aggregate)


def mean_server(method: Method, outer: str) -> OfMeans:
    """Check that a method's server reads only means, and return the server.

    Raise an error if the server reads the whole inbox.

    Args:
        method: the method whose server is checked.
        outer: name of the transform that replaces the mean of the models.

    Raises:
        ValueError: if the server reads the whole inbox, or if it belongs to a transform that must
            be the outermost wrapper.

    Example:
        >>> mean_server(fgl.fedavg(torch.nn.Linear(1, 1)), "robust") is fgl.federation.average
        True
    """
    served = method.aggregate
    if isinstance(served, OfMeans):
        return served
    layers = [each for layer in method.layers for each in layer.all]
    sealed = [each.name for each in layers if "aggregate" in each.sealed]
    if sealed:
        way = f"write {sealed[-1]}({outer}(method, ...), ...)"
        way = WITH_SUMS[outer] if "secure_sum" in sealed else way
        raise ValueError(
            f"Expected {sealed[-1]} to be the outermost wrapper, but got {outer} around it: {way}"
        )
    raise ValueError(
        f"Expected {outer} to be given a method whose server reads the mean of the models, which "
        f"{outer} replaces, but got {method}, whose server reads the whole inbox. If the mean is "
        "all that it needs, write replace(method, aggregate=fgl.federation.OfMeans(serve))"
    )


def _check_covered(served: OfMeans, untouched: Collection[str]) -> None:
    """Raise an error if the server reads an entry other than the model and those in `untouched`."""
    others = [key for key in (*served.equally, *served.reads) if key not in untouched]
    want = "the server to read the mean of the models alone, which a robust mean covers"
    reject_if(others, want, f"{others} too: name in untouched what shall pass as it is")


def _counts(message: Message) -> bool:
    return "num_examples" not in message or bool(message["num_examples"] > 0)
