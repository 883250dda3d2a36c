"""Which weights of a model are trained, chosen by the names that they have in its file.

A classifier's file has the names `<body>.…` and those of its head (`classifier.weight`, `score.weight`). The body's
blocks are numbered: `vit.encoder.layer.11.…`, `transformer.h.0.…`; of nested numbers the first one counts, so the
blocks of a ResNet are its stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from seedbus.models.errors import DataError
from seedbus.models.text.last_blocks import last_blocks
from seedbus.models.text.shapes import is_norm
from seedbus.models.text.training import Full, Head, LayerNorm, Lora
from seedbus.settings import Settings


class LastBlocks(Settings):
    """The last blocks are trained, and the head of a classifier."""

    kind: Literal["last-blocks"] = "last-blocks"
    blocks: int = Field(1, ge=1, le=1024, description="how many blocks, from the last one")


def heads(names: Iterable[str]) -> set[str]:
    """Return the names of a classifier's weights that do not belong to its body, the part with the most tensors."""
    own = list(names)
    parts = Counter(name.partition(".")[0] for name in own)
    body = max(parts, key=lambda part: parts[part], default="")
    return {name for name in own if name.partition(".")[0] != body}


def selected(
    train: Full | Head | LastBlocks | LayerNorm | Lora, names: Iterable[str], *, is_classifier: bool
) -> set[str]:
    """Return the names of the model's own weights that are trained; LoRA's additions have no names in its file.

    Args:
        train: the choice.
        names: the names of all weights, as in the model's file.
        is_classifier: whether the model has a head besides its body.

    Raises:
        DataError: the model has no head, or fewer blocks.
    """
    own = list(names)
    if isinstance(train, Full):
        return set(own)
    if isinstance(train, LayerNorm):
        return {name for name in own if is_norm(name)}
    head = heads(own) if is_classifier else set()
    if is_classifier and not head:
        raise DataError("task.model", "a file without a head, so without classes", "a classifier")
    body = (name for name in own if name not in head)
    return head | (last_blocks(body, train.blocks) if isinstance(train, LastBlocks) else set())
