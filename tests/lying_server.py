"""A server that lies to the clients of a secure sum, and clients whose uploads are known."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

import fgl
from fgl import Method, Training
from fgl.privacy import masks as parts
from fgl.privacy import shares, signatures
from fgl.privacy.fixed_point import wrapped_sum
from fgl.transforms import Signatures, secure_sum
from fgl.transforms.secure_sum.messages import Terms, flat
from fgl.transforms.secure_sum.signed import message_digest, of_list

F64 = torch.float64


def own_models() -> Method:
    """A method whose clients train nothing, and add their number of nodes to the model."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).double()

    def send(params: Any, context: Any, state: Any, graph: fgl.Graph) -> Any:
        mine = {name: value + graph.num_nodes for name, value in params.items()}
        return {"model": mine, "num_examples": torch.tensor(graph.num_nodes)}, state

    return replace(fgl.fedavg(model, train=Training(num_steps=0)), send=send)


@cache
def lines(number: int) -> list[fgl.Graph]:
    """Clients with 1, 2, 3, ... nodes."""
    edges = torch.zeros(2, 0, dtype=torch.int64)
    return [fgl.Graph(torch.ones(k + 1, 3, dtype=F64), edges) for k in range(number)]


def secret_of(client: int) -> bytes:
    return bytes([client + 1]) * 32


def all_keys(number: int) -> Signatures:
    """Keys of all clients; one that is asked knows itself by its number of nodes."""
    public = {k: signatures.signing_key(secret_of(k)) for k in range(number)}
    return Signatures(public, lambda graph: secret_of(graph.num_nodes - 1))


class LyingServer:
    """A server that asks clients what it likes; some clients tell it all that they know.

    Args:
        number: of clients.
        threshold: of their secure sum.
        colluders: those who work with the server.
        signed: whether clients sign what they saw.
    """

    def __init__(
        self, number: int, threshold: int, *, colluders: tuple[int, ...] = (), signed: bool = False
    ) -> None:
        more: dict[str, Any] = {}
        if signed:
            more = {"signed": all_keys(number), "colluders": len(colluders)}
        self.method = secure_sum(own_models(), threshold=threshold, **more)
        self.terms = Terms(threshold, **more)
        self.number, self.colluders, self.signed = number, colluders, signed
        self.states: list[Any] = [{} for _ in range(number)]
        self.models: list[Any] = [{"model": self.method.initial()}] * number

    def ask(self, client: int, message: Any) -> Any:
        """A client's answer."""
        own, state = lines(self.number)[client], self.states[client]
        params, context = self.method.receive(message, state, own)
        told = {"num_steps": torch.tensor(0), "losses": torch.zeros(0)}
        answer, self.states[client] = self.method.send(
            params, {**context, "trained": told}, state, own
        )
        return answer["secure"]

    def keys(self) -> dict[str, Tensor]:
        """The list of keys, as an honest server makes it."""
        said = [self.ask(client, self.models[client]) for client in range(self.number)]
        listed = {"keys": torch.stack([each["keys"] for each in said])}
        if self.signed:
            signs = torch.stack([each["signature"] for each in said])
            listed |= {"clients": torch.arange(self.number), "signatures": signs}
        return listed

    def letters(self, listed: Mapping[str, Tensor], among: Any = None) -> Tensor:
        """The letters ``[n, n, 92]``, by who wrote them; others than those `among` are silent."""
        asked = {"phase": torch.tensor(1), "secure": listed}
        made = torch.zeros(self.number, self.number, parts.LETTER, dtype=torch.uint8)
        for client in range(self.number) if among is None else among:
            made[client] = self.ask(client, asked)["letters"]
        return made

    def masked(self, client: int, letters: Tensor, here: Tensor) -> Tensor:
        """A client's masked upload, all words in one row."""
        asked = {"letters": letters[:, client].clone(), "here": here}
        return flat(self.ask(client, {"phase": torch.tensor(2), "secure": asked}))

    def shares(self, keys: Tensor, sent: Mapping[int, Tensor]) -> dict[int, list[Tensor]]:
        """What clients tell who are each asked with a list of their own; colluders tell all."""
        asked = {client: {"sent": each} for client, each in sent.items()}
        if self.signed:
            phase = torch.tensor(5)
            signs = {k: self.ask(k, {"phase": phase, "secure": s}) for k, s in asked.items()}
            asked = {k: {"signatures": self.with_colluders(signs, k, keys, sent[k])} for k in sent}
        told = {}
        for client, each in asked.items():
            answer = self.ask(client, {"phase": torch.tensor(3), "secure": each})
            told[client] = [answer["shares"]]
        return told | {client: self.all_of(client, keys) for client in self.colluders}

    def with_colluders(self, signs: Any, client: int, keys: Tensor, sent: Tensor) -> Tensor:
        """The signatures that came, and those of colluders under this client's own list."""
        known = torch.zeros(self.number, 64, dtype=torch.uint8)
        for other, answer in signs.items():
            known[other] = answer["signature"]
        about, told = self.terms.about(keys), message_digest(self.models[client])
        seen = of_list(about, torch.arange(self.number), sent, told)
        for other in self.colluders:
            known[other] = parts.as_tensor(signatures.signature(secret_of(other), seen))
        return known

    def all_of(self, client: int, keys: Tensor) -> list[Tensor]:
        """Both shares of all secrets, from the letters that a colluder got."""
        known, all_ = self.states[client]["secure"], torch.ones(self.number).bool()
        how = (client, parts.as_bytes(known["seal"]), keys, known["letters"], all_)
        return [parts.revealed(*how, sent, self.terms.about(keys)) for sent in (all_, ~all_)]

    def secret(self, told: Mapping[int, list[Tensor]], of: int, kind: int) -> bytes:
        """A client's secret, from what was told."""
        came = {
            by: parts.as_bytes(each[of, 1:])
            for by, some in told.items()
            for each in some
            if int(each[of, 0]) == kind
        }
        assert len(came) >= self.terms.threshold, "too few shares for this plan"
        chosen = sorted(came)[: self.terms.threshold]
        return shares.combine({by: came[by] for by in chosen})

    def split_view(self, victim: int) -> Tensor:
        """The victim's upload: it is told another list of who is here than all others are.

        It has masks with few. Others say the secrets of these, each of whom is missing in some
        lists of who is in the sum, and nobody is asked for two secrets of one client.
        """
        n, t = self.number, self.terms.threshold
        listed = self.keys()
        keys, letters = listed["keys"], self.letters(listed)
        others = [k for k in range(n) if k != victim]
        beside = sorted(others, key=lambda k: k not in self.colluders)[: t - 1]
        view = torch.tensor([k == victim or k in beside for k in range(n)])
        hidden = self.masked(victim, letters, view)
        for client in others:
            self.masked(client, letters, torch.ones(n).bool())
        missing = dict.fromkeys([k for k in beside if k not in self.colluders], 0)
        sent = {victim: view}
        for client in (k for k in others if k not in self.colluders):
            fewest = sorted((k for k in missing if k != client), key=missing.__getitem__)
            out = fewest[: n - t]
            missing |= {k: missing[k] + 1 for k in out}
            sent[client] = torch.tensor([k not in out for k in range(n)])
        told = self.shares(keys, sent)
        count = hidden.numel()
        plus, minus = [hidden], [parts.mask(self.secret(told, victim, parts.SEED), count)]
        for other in beside:
            pair = b" mask %d %d" % (min(victim, other), max(victim, other))
            public = parts.as_bytes(keys[victim, parts.KEY :])
            if other in self.colluders:
                masking = parts.as_bytes(self.states[other]["secure"]["mask"])
            else:
                masking = self.secret(told, other, parts.SECRET)
            agreed = parts.agreed_key(masking, public, self.terms.about(keys) + pair)
            (minus if victim < other else plus).append(parts.mask(agreed, count))
        return wrapped_sum(plus, minus=minus)
