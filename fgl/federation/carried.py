"""Privacy costs of earlier runs.

A run with ``start=`` adds its own costs to the costs of the earlier runs.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..privacy.record import NONE, Record, with_answers, with_noise
from .history import Result
from .method.message import Aggregate, Inbox, Message, State
from .method.method import Method
from .round import DROPPED

KEY = "privacy"  # key in the server's state


def carried(method: Method, start: Result, state: State) -> State:
    """The server's first state in a run that starts from the result of an earlier run.

    The returned state includes the privacy costs of the earlier run.

    If a method counts privacy costs, its state has a record of the costs from the first round on.
    So if the state has no such record, the method that produced the state adds no noise. If the
    record is missing, all answers in the earlier run count as answers without noise.

    Args:
        method: the method of the new run.
        start: the result from which the new run starts.
        state: the server's state in `start`.

    Raises:
        ValueError: if the new run's noise cannot be composed with the earlier run's noise. The
            error is raised before any message is sent.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1))
        >>> start = Result({0: {}}, {"model": method.initial()}, {}, [])
        >>> list(carried(method, start, start.server_state))
        ['model']
    """
    if method.privacy.account is None:
        return state
    number = len(start.outbox)
    answers = _answers(start)
    state = {**state, KEY: _without_protection({}, number, answers)} if answers else state
    return method.privacy.account(Inbox({}, number, asked=[]), state)


def unprotected(method: Method, start: Result) -> dict[int, int]:
    """For each client, the number of answers without noise in earlier runs.

    The result is empty if `method.privacy.account` already counts the answers.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1))
        >>> start = Result({0: {}}, {}, {}, [fgl.federation.Round(0, [0])], unprotected={0: 2})
        >>> unprotected(method, start)
        {0: 3}
    """
    return dict(_answers(start)) if method.privacy.account is None else {}


def _answers(start: Result) -> Counter[int]:
    """Count each client's answers without noise, in the run `start` and in all earlier runs.

    The result is empty if the server's state has a record of privacy costs, which counts these
    answers.
    """
    if KEY in start.server_state:
        return Counter()
    own = (
        client
        for record in start.history
        for client in record.participants
        if record.dropped.get(client) != DROPPED
    )
    return Counter(start.unprotected) + Counter(own)


def counted_on(method: Method, state: State) -> Method:
    """Return the method with a server that counts the noiseless answers of each client.

    So the answers of a run without noise are counted if this run continues a run with noise. The
    method is returned unchanged if `state` contains no record of an earlier run's noise. The method
    is also returned unchanged if the method already counts its answers, by
    `method.privacy.account`.

    Args:
        method: the method of a run.
        state: the server's first state.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1))
        >>> counted_on(method, {"model": method.initial()}) is method
        True
    """
    record: Any = state.get(KEY)
    if method.privacy.account is not None:
        return method
    if not isinstance(record, Mapping) or "rounds" not in record:
        return method

    def account(inbox: Inbox, state: State) -> State:
        before: Any = state[KEY]
        answers = Counter(k for k in inbox.asked if method.privacy.costs(inbox.sent.get(k, {})))
        return {**state, KEY: _without_protection(before, inbox.num_clients, answers)}

    def counting(serve: Aggregate) -> Aggregate:
        def counted(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
            outbox, new = serve(inbox, {key: value for key, value in state.items() if key != KEY})
            return outbox, {**new, KEY: account(inbox, state)[KEY]}

        return counted

    rules, aggregate = method.rules, counting(method.aggregate)
    if rules.joining is not None:
        welcome = counting(rules.joining.welcome)
        rules = replace(rules, joining=replace(rules.joining, welcome=welcome))
    privacy = replace(method.privacy, account=account)
    return replace(method, aggregate=aggregate, rules=rules, privacy=privacy)


def _without_protection(
    record: Record, num_clients: int, answers: Mapping[int, float]
) -> dict[str, Any]:
    return with_answers(with_noise(record, NONE, num_clients=num_clients), answers)
