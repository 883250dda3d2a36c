"""Losses of a batch in parts, and of a step as they leave their device: all in one transfer, and compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FLOAT32 = 2.0**-23
"""The resolution of losses in float32, relative to them: the distance of 1 from the next number."""
BFLOAT16 = 2.0**-12
"""That of losses whose products are in bfloat16. Of a distance of 2⁻⁷ most averages out: with a model of OPT's shape,
17 million random weights and 8 sentences, changes of a loss of 10.9 were wrong by 0.001 (rms), whatever the change."""


def resolution_of(compute_dtype: str) -> float:
    """Return the resolution of losses whose products are in "float32" or "bfloat16"."""
    return BFLOAT16 if compute_dtype == "bfloat16" else FLOAT32


class Compared:
    """An objective that counts the local steps at whose points its losses do not differ. See `objective.Compared`."""

    resolution = FLOAT32
    steps = 0
    equal = 0

    def compare(self, losses: Sequence[float]) -> None:
        """Take the losses of one local step; all within two steps of the resolution of the first are equal."""
        self.steps += 1
        most = 2 * self.resolution * abs(losses[0])
        self.equal += all(abs(loss - losses[0]) <= most for loss in losses)


def mean_of_parts(losses: Sequence[Tensor], sizes: Sequence[float]) -> Tensor:
    """Return the mean loss of a batch from those of its parts: products and sums in their order, on their device.

    Args:
        losses: the mean loss of each part, or several of them [n].
        sizes: the samples of each part.
    """
    if len(losses) == 1:
        return losses[0]
    first, *others = (loss * weight for loss, weight in zip(losses, weights(sizes), strict=True))
    for loss in others:
        first = first + loss
    return first


def weights(sizes: Sequence[float]) -> list[float]:
    """Return the weight of each part in the mean loss of a batch."""
    return [size / sum(sizes) for size in sizes] if len(sizes) > 1 else [1.0]


def read(losses: Sequence[Tensor]) -> list[float]:
    """Return losses as numbers, in their order, by one transfer from their device.

    Args:
        losses: tensors of one type on one device, of one loss or of several [n].
    """
    return list(map(float, torch.cat([loss.reshape(-1) for loss in losses]).tolist()))
