"""FedAux: each client gets its own mix of models, weighted by similarities of learned vectors."""

from dataclasses import replace

import torch

from .. import federation as fed
from ..checks import Weight, reject_if
from ..federation import Inbox, Method, Outbox, State
from .mix_models import mix_similar


@fed.layer(checks=[fed.check_averages, fed.check_one_architecture])
def fedaux(fedavg: Method, *, scale: Weight = 10.0, vector: str = "aux") -> Method:
    """FedAvg in which models are weighted by the similarity of vectors that clients learn (FedAux).

    Client i gets ``sum_j S_ij theta_j``, where
    ``S_ij = exp(scale cos(a_i, a_j)) / sum_k exp(scale cos(a_i, a_k))``. The sums are over the
    participants. The vector a_i is a parameter of the model. Training makes a_i similar to the
    embeddings of the client's nodes (`fgl.nn.AuxSAGE`). The server mixes a_i like all other
    parameters. Clients train and send as in FedAvg. The mixes of a round do not include models of
    absent clients. An absent client keeps the last model that it received. A client that has never
    taken part gets the mean of the models, as in the public code.

    The public code has three variants. This method is the variant that the public code calls
    ``fedaux``. The README of the public code uses the variant ``fedpub_aux``, in which clients also
    train masks for all weights. In the public code, the loss of ``fedaux`` includes the distance to
    the received model, but this distance is computed from tensors without a gradient. The distance
    therefore changes no parameter and is left out here. The published settings are a width of 256,
    sigma 10, dropout .7, and 100 rounds of one epoch. The optimiser is Adam with a learning rate of
    .01 and a weight decay of 5e-4. Each client keeps Adam's moments from round to round.

    Args:
        fedavg: FedAvg built for a model that has a one-dimensional parameter named `vector`; the
            server must send the mean of the models.
        scale: factor of the cosines, at least 0. A larger factor gives more weight to similar
            clients; 0 gives all clients equal weights.
        vector: name of the parameter.

    Raises:
        ValueError: if `scale` is negative, or if the server of `fedavg` does not send the mean of
            the models. A ValueError is also raised if the model has no one-dimensional parameter
            named `vector`.

    Example:
        >>> fedaux(fgl.fedavg(fgl.nn.AuxSAGE(4, 8, 2)), scale=5.0)
        fedaux(fedavg(AuxSAGE(...)), scale=5.0)

    Source: Zhuo et al. 2025, https://arxiv.org/abs/2505.23864; https://github.com/JhuoW/FedAux
    """
    parameter = dict(fedavg.model.named_parameters()).get(vector)
    want = f"the model to have a vector {vector!r}, as fgl.nn.AuxSAGE has (model='aux' in a task)"
    reject_if(parameter is None or parameter.dim() != 1, want, type(fedavg.model).__name__)

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        vectors = inbox.stack("model").get(vector)
        reject_if(vectors is None, f"uploads to have the vector {vector!r}", "none")
        return mix_similar(inbox, state, vectors, scale=scale)

    return replace(fedavg, aggregate=aggregate)
