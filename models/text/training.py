"""Which of a language model's weights are trained: all, low-rank additions, a prefix, or the normalisation layers.

Only what is trained is x; the rest is frozen, and part of what a process proves when it joins. Each way counts its
coordinates from names and shapes alone, so that a scenario's dimension is known before anything is loaded.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from seedbus.models.errors import DataError
from seedbus.models.text.weights import Pretrained, is_norm, matrices


class Full(BaseModel, frozen=True, extra="forbid"):
    """Every weight; tied ones are one."""

    kind: Literal["full"] = "full"

    def count(self, pretrained: Pretrained) -> int:
        return pretrained.size


class Lora(BaseModel, frozen=True, extra="forbid"):
    """W + (alpha / rank)·BA with A and B trained (Hu et al. 2021), by `peft`; B begins at 0, A is drawn by key."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(8, ge=1, le=4096, description="rows of A and columns of B")
    alpha: float = Field(8.0, gt=0, le=1e6, description="BA is scaled by alpha over rank")
    targets: tuple[str, ...] = Field(
        ("q_proj", "v_proj"), min_length=1, description="names of the linear layers, in every block"
    )

    def count(self, pretrained: Pretrained) -> int:
        """Raises `DataError` where the model has no layer of those names."""
        found = matrices(pretrained.shapes, self.targets)
        if not found:
            linear = sorted({name.split(".")[-2] for name, shape in pretrained.shapes.items() if len(shape) == 2})
            raise DataError("task.train.targets", ", ".join(self.targets), f"names of layers: {', '.join(linear)}")
        return sum(self.rank * sum(shape) for shape in found)


class Prefix(BaseModel, frozen=True, extra="forbid"):
    """Keys and values before every layer's own (Li & Liang 2021), by `peft`, without its reparametrisation.

    They begin as the activations of random words, as MeZO found needful (Malladi et al. 2023, appendix E): the words
    are drawn by key, and the activations computed in float64 and rounded to bfloat16's 8 bits, the same everywhere.
    """

    kind: Literal["prefix"] = "prefix"
    tokens: int = Field(5, ge=1, le=1024, description="length of the prefix")

    def count(self, pretrained: Pretrained) -> int:
        config = pretrained.config
        layers = config.get("num_hidden_layers") or config.get("n_layer")
        hidden = config.get("hidden_size") or config.get("n_embd")
        heads = config.get("num_attention_heads") or config.get("n_head")
        if not (layers and hidden and heads):
            raise DataError("task.train", "a model whose config.json does not tell its layers", "another `train`")
        keys = int(config.get("num_key_value_heads") or heads) * int(config.get("head_dim") or hidden // heads)
        return int(layers) * 2 * self.tokens * keys


class LayerNorm(BaseModel, frozen=True, extra="forbid"):
    """Weights and biases of the normalisation layers (Zhao et al. 2023)."""

    kind: Literal["layernorm"] = "layernorm"

    def count(self, pretrained: Pretrained) -> int:
        return sum(math.prod(shape) for name, shape in pretrained.shapes.items() if is_norm(name))


Training = Annotated[Full | Lora | Prefix | LayerNorm, Field(discriminator="kind")]
