"""Generator that computes node features from noise and a class, for FedTAD (Zhu et al. 2024)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..checks import check_count


class NodeGenerator(nn.Module):
    """FedTAD's generator: ``x = W tanh(W_3 tanh(W_2 tanh(W_1 [E_c || z])))``; all maps have biases.

    Args:
        num_features: width of x.
        num_classes: number of classes; also the width of the embeddings E of the classes.
        noise: width of z.
        widths: widths of the hidden layers.

    Shapes:
        - z: float ``[n, noise]``.
        - labels: int64 ``[n]``.
        - output: float ``[n, num_features]``.

    Example:
        >>> generator = NodeGenerator(6, 3, noise=4, widths=(8,))
        >>> generator(torch.randn(5, 4), torch.tensor([0, 0, 1, 1, 2])).shape
        torch.Size([5, 6])

    Source: Zhu et al. 2024, https://arxiv.org/abs/2404.14061; https://github.com/zyl24/FedTAD
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        noise: int = 32,
        widths: Sequence[int] = (64, 128, 256),
    ) -> None:
        super().__init__()
        check_count(num_features=num_features, num_classes=num_classes, noise=noise)
        self.num_features, self.num_classes, self.noise = num_features, num_classes, noise
        self.classes = nn.Embedding(num_classes, num_classes)
        sizes = [num_classes + noise, *widths]
        self.hidden = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        self.head = nn.Linear(sizes[-1], num_features)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        h = torch.cat([self.classes(labels), z], 1)
        for layer in self.hidden:
            h = layer(h).tanh()
        x: Tensor = self.head(h)
        return x
