"""Limits: how much a client may send, and how many rounds may have no upload that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...checks import check_number
from ..method.message import num_bytes
from ..method.method import Method

TIMES = 16  # the model, at most, in one upload
ROOM = 2**24  # bytes of an upload beside that
RAGGED = 2**30  # bytes more where the sizes of entries depend on a client's data
NOTE = 2**20  # bytes of the data beside a message


@dataclass(frozen=True)
class Limits:
    """Bounds on uploads and on empty rounds: ``fgl.run(..., limits=Limits(metrics=20))``.

    Args:
        upload_bytes: largest size of an upload. Default 16 times the model plus 16 MiB, and 1 GiB
            more if the method has `ragged` keys, whose sizes depend on a client's data.
        note_bytes: largest size of the data that a remote client sends beside its message: numbers,
            losses, names, metrics. Default 1 MiB plus 16 times the length of the model's names.
        metrics: largest number of metrics of a client's own score, and of all clients' scores
            together. If there are more, the metrics that most clients have are kept.
        metric_length: largest number of characters of a metric's name.
        empty_rounds: the run raises after this number of consecutive rounds in which no upload
            counts, and at its end if no upload counted in any round. An exchange with such a round,
            as of a secure sum, counts as one. None for no limit.

    Raises:
        TypeError, ValueError: for a number that is no whole number, or out of range.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(256, 256, bias=False))
        >>> Limits().of_upload(method) // 2**20, Limits(upload_bytes=1000).of_upload(method)
        (20, 1000)
    """

    upload_bytes: int | None = None
    note_bytes: int | None = None
    metrics: int = 100
    metric_length: int = 100
    empty_rounds: int | None = 3

    def __post_init__(self) -> None:
        for name in ("metrics", "metric_length"):
            check_number(name, getattr(self, name), at_least=0, integer=True)
        for name in ("upload_bytes", "note_bytes", "empty_rounds"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, at_least=1, integer=True)

    def of_upload(self, method: Method) -> int:
        """The largest size of an upload in bytes."""
        if self.upload_bytes is not None:
            return self.upload_bytes
        return TIMES * num_bytes(method.common()) + ROOM + (RAGGED if method.rules.ragged else 0)

    def of_note(self, method: Method) -> int:
        """The largest size of the data beside a message in bytes."""
        if self.note_bytes is not None:
            return self.note_bytes
        return NOTE + 16 * sum(map(len, method.common()))

    def check_bytes(self, method: Method, upload: int, note: int = 0) -> None:
        """Raise a ValueError if an upload, or the data beside it, is too large.

        Example:
            >>> Limits(upload_bytes=1000).check_bytes(fgl.fedavg(torch.nn.Linear(1, 1)), 1001)
            Traceback (most recent call last):
            ValueError: Expected the upload to have at most 1000 bytes, but got 1001
        """
        for name, most, got in (
            ("the upload", self.of_upload, upload),
            ("what stands beside it", self.of_note, note),
        ):
            if got and got > most(method):
                raise ValueError(
                    f"Expected {name} to have at most {most(method)} bytes, but got {got}"
                )

    def check_metrics(self, names: Mapping[str, Any]) -> None:
        """Raise a ValueError if a score has too many metrics or an unreadable name.

        Example:
            >>> Limits().check_metrics({"a" * 200: 1.0})
            Traceback (most recent call last):
            ValueError: Expected the names of metrics to have at most 100 letters, but got 200
        """
        if len(names) > self.metrics:
            raise ValueError(
                f"Expected a score to have at most {self.metrics} metrics, but got {len(names)}"
            )
        for name in names:
            if len(name) > self.metric_length:
                raise ValueError(
                    f"Expected the names of metrics to have at most {self.metric_length} letters, "
                    f"but got {len(name)}"
                )
            if not name.isprintable():
                raise ValueError(f"Expected the names of metrics to be printable, but got {name!a}")

    def too_many(self, scores: Mapping[int, Mapping[str, Any]]) -> set[str]:
        """Names of the metrics to leave out, the rarest ones; empty if all fit.

        Example:
            >>> scores = {0: {"auc": 0.5}, 1: {"auc": 0.7, "spam": 1.0}}
            >>> Limits(metrics=1).too_many(scores), Limits().too_many(scores)
            ({'spam'}, set())
        """
        counts = Counter(name for score in scores.values() for name in score)
        return {name for name, _ in counts.most_common()[self.metrics :]}
