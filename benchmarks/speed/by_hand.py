"""FedAvg by hand: what a user of PyG writes, as the other side of a speed table."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def rounds_by_hand(
    server: Any,
    clients: Sequence[Iterable[Any]],
    sizes: Sequence[int],
    *,
    loss: Callable[[Any, Any], Any],
    optimizer: Callable[[Any], Any],
    rounds: int,
) -> Callable[[], None]:
    """Some rounds: a deep copy of the model for each client, a loop over its batches, a mean.

    ``loss(model, batch)`` is what a client minimises; it weighs as much as its size.
    """
    shares = [size / sum(sizes) for size in sizes]

    def run() -> None:
        for _ in range(rounds):
            trained = []
            for batches in clients:
                own = copy.deepcopy(server)
                stepper = optimizer(own.parameters())
                for batch in batches:
                    stepper.zero_grad()
                    loss(own, batch).backward()
                    stepper.step()
                trained.append(own.state_dict())
            pairs = list(zip(trained, shares, strict=True))
            mean = {key: sum(own[key] * share for own, share in pairs) for key in trained[0]}
            server.load_state_dict(mean)

    return run
