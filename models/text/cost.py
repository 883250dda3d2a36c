"""What a forward pass of a language model costs, from its shapes: for estimates before a model and its data are there.

Two floating-point operations a weight of the layers and token, and four times the width a layer and pair of tokens.
Embeddings and the head are left out, which sees few positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from seedbus.models.text.shapes import Shapes, is_size


class Texts(NamedTuple):
    """What is known of a published data set without its files.

    Attributes:
        tokens: of the longest of 32 prompts with their answers: 1.3 a word, with words counted in the training files of
            SST-2, RTE and QQP, and assumed for the other sets.
        trained: rows of its training file.
        tested: rows of its test file.
    """

    tokens: int
    trained: int
    tested: int


TEXTS = {
    "sst2": Texts(45, 67_349, 872),
    "rte": Texts(200, 2_490, 277),
    "cb": Texts(220, 250, 56),
    "boolq": Texts(360, 9_427, 3_270),
    "wsc": Texts(85, 554, 104),
    "wic": Texts(75, 5_428, 638),
    "multirc": Texts(420, 27_243, 4_848),
    "qqp": Texts(95, 363_846, 40_430),
    "squad": Texts(420, 87_599, 10_570),
}
"""By the name of the data set."""
PACKED = 0.4
"""Tokens of a text as a share of `Texts.tokens`, where there is no padding: 0.36 of SST-2 and 0.41 of RTE."""


def pass_flops(shapes: Shapes, config: Mapping[str, Any], tokens: int) -> float:
    """Return the floating-point operations of a forward pass of so many tokens.

    Args:
        shapes: the shapes of the model's weights by their names.
        config: the model's configuration.
        tokens: the length of the text.
    """
    layers: dict[str, int] = {}
    for name, shape in shapes.items():
        if len(shape) > 1 and (number := next(filter(str.isdecimal, name.split(".")), None)) is not None:
            layers[number] = layers.get(number, 0) + math.prod(shape)
    width = config.get("hidden_size")
    between = 4 * len(layers) * width * tokens**2 if is_size(width) and width is not None else 0
    return 2.0 * sum(layers.values()) * tokens + between
