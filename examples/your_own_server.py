"""A server of your own: it remembers the way that models moved.

    python examples/your_own_server.py

The server aggregates the inbox, which has a message of every client that
took part, and its own state. It returns the outbox, what every client is
sent next, and its new state: tensors by name, at most one dict deep. Both
go into a checkpoint, so a run goes on where it was. FedAvg's server makes
the mean of the models; here that mean is a direction, and the model moves
on with a part of its last move (momentum; `fgl.methods.fedopt` has more).
`after` says that this server reads the mean alone, so it also works under
a secure sum or with a robust mean.
"""

from dataclasses import replace

import torch

import fgl
from fgl.federation import after, changed_messages


@fgl.layer
def with_momentum(fedavg, *, beta=0.5):
    """FedAvg whose model keeps a share of its last move."""

    def with_move(outbox, new, means, state):
        if not outbox:  # no client had an example
            return outbox, state
        old, mean = state["model"], new["model"]
        last = state.get("move", {})  # none at first
        move = {}
        for name, value in mean.items():
            more = beta * last.get(name, 0)
            move[name] = value - old[name] + more
        model = {name: old[name] + move[name] for name in mean}

        def with_model(message):
            return {**message, "model": model}

        outbox = changed_messages(outbox, with_model)
        return outbox, {**new, "model": model, "move": move}

    aggregate = after(fedavg.aggregate, with_move)
    return replace(fedavg, aggregate=aggregate)


def main():
    torch.manual_seed(0)  # the initial model's; a run has its own
    setting = fgl.tasks.Nodes(dataset="synthetic", clients=5)
    task = setting.load(seed=0)
    for method in (task.fedavg, with_momentum(task.fedavg)):
        result = fgl.run(method, task, num_rounds=10)
        accuracy = result.history[-1].metrics["test_accuracy"]
        print(f"{method.layers[-1].name:14} {accuracy:.3f}")
    print(f"the server keeps {sorted(result.server_state)}")


if __name__ == "__main__":
    main()
