"""Which weights of a language model are trained: all, the last blocks, the normalisation layers, or additions.

Only trained weights are part of x. Frozen weights are part of the digest that a process sends when it joins. Each class
counts its coordinates from names and shapes alone, so that a scenario's dimension is known before anything is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from seedbus.models.errors import DataError
from seedbus.models.text.last_blocks import computed_shapes, last_blocks
from seedbus.models.text.shapes import Shapes, is_norm, matrix_shapes, whole
from seedbus.models.text.weights import Pretrained
from seedbus.settings import Settings

_QUERIES_AND_VALUES = (  # the layers' names in transformers; in some models one layer has queries, keys and values
    ("q_proj", "v_proj"),  # OPT, Llama, Mistral, Qwen, Gemma, OLMo
    ("query", "value"),  # BERT, RoBERTa, ViT
    ("q_lin", "v_lin"),  # DistilBERT
    ("q", "v"),  # MPNet
    ("query_key_value",),  # GPT-NeoX, Pythia, BLOOM, Falcon
    ("qkv_proj",),  # Phi-3
    ("c_attn",),  # GPT-2
    ("Wqkv",),  # MPT, ModernBERT
)

_SIZES_OF_LAYERS = (  # their number, width and heads, as most models and as GPT-2 name them
    ("num_hidden_layers", "n_layer"),
    ("hidden_size", "n_embd"),
    ("num_attention_heads", "n_head"),
)


class Full(Settings):
    """All weights are trained; tied weights count once."""

    kind: Literal["full"] = "full"

    def trained(self, names: Iterable[str]) -> set[str]:
        """Return which of the model's own weights are trained."""
        return set(names)

    def count(self, pretrained: Pretrained) -> int:
        return pretrained.size


class LastBlocks(Settings):
    """The last blocks are trained. What enters the first of them is computed once for each text and kept.

    It takes 4 bytes times the model's width for each token, 2,304 for a width of 576. Embeddings, the last
    normalisation and the head are frozen, as in the task hugging-face.
    """

    kind: Literal["last-blocks"] = "last-blocks"
    blocks: int = Field(1, ge=1, le=1024, description="how many blocks, from the last one")
    kept_mb: int = Field(
        1024,
        ge=0,
        le=2**20,
        description="most MiB of what is kept in a process; further texts are computed each time, with the same bits",
    )

    def trained(self, names: Iterable[str]) -> set[str]:
        """Return which of the model's own weights are trained. Raises `DataError` if it has fewer blocks."""
        return last_blocks(names, self.blocks)

    def count(self, pretrained: Pretrained) -> int:
        """Return the number of coordinates. Raises `DataError` if the model has fewer blocks."""
        return sum(math.prod(pretrained.shapes[name]) for name in self.trained(pretrained.shapes))

    def computed(self, shapes: Shapes) -> Shapes:
        """Return the shapes of the weights that each loss computes with."""
        return computed_shapes(shapes, self.blocks)


class Head(Settings):
    """Only the classifier is trained; the encoder is frozen."""

    kind: Literal["head"] = "head"


class Lora(Settings):
    """LoRA (Hu et al. 2021), by `peft`: W + (alpha / rank)·BA. A is drawn by key, B begins at 0; both are trained."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(8, ge=1, le=4096, description="rows of A and columns of B")
    alpha: float = Field(8.0, gt=0, le=1e6, description="BA is scaled by alpha over rank")
    targets: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="names of the linear layers, in all blocks; none: those of queries and values, as the model names "
        "them",
    )

    def layers(self, shapes: Shapes) -> tuple[str, ...]:
        """Return the names of the layers with additions. Raises `DataError` if the model lacks one of them.

        Args:
            shapes: the shapes of the model's weights by their names in its file.
        """
        matrices = [name.split(".") for name, shape in shapes.items() if len(shape) == 2 and name.endswith(".weight")]
        in_blocks = [parts for parts in matrices if any(part.isdecimal() for part in parts[:-2])]
        own = {parts[-2] for parts in in_blocks or matrices}
        chosen = self.targets or next((names for names in _QUERIES_AND_VALUES if own.issuperset(names)), None)
        found = "no layers of queries and values with a known name" if chosen is None else ""
        missing = found or ", ".join(name for name in chosen or () if not matrix_shapes(shapes, [name]))
        if missing or chosen is None:
            names = (
                f"names of layers: {', '.join(sorted(own))}" if own else "another train: the model has no such layers"
            )
            raise DataError("task.train.targets", missing, names)
        return chosen

    def count(self, pretrained: Pretrained) -> int:
        """Return the number of coordinates. Raises `DataError` if the model lacks a layer."""
        shapes = matrix_shapes(pretrained.shapes, self.layers(pretrained.shapes))
        return sum(self.rank * sum(shape) for shape in shapes)


class Prefix(Settings):
    """Prefix tuning (Li & Liang 2021), by `peft`: trained keys and values before those of every layer.

    There is no reparametrisation. The initial values are the activations of random words, which MeZO found necessary
    (Malladi et al. 2023, appendix E). The words are drawn by key; the activations are computed in float64 and rounded
    to the 8 bits of bfloat16, so that they are the same on every machine.
    """

    kind: Literal["prefix"] = "prefix"
    tokens: int = Field(5, ge=1, le=1024, description="length of the prefix")

    def count(self, pretrained: Pretrained) -> int:
        config = pretrained.config
        names = [next(filter(config.get, own), None) for own in _SIZES_OF_LAYERS]
        if None in names:
            raise DataError("task.train", "a model whose config.json does not give its layers", "another `train`")
        layers, hidden, heads = (whole(config, str(name), "task.model") for name in names)
        keys = whole(config, "num_key_value_heads", "task.model") if config.get("num_key_value_heads") else heads
        width = whole(config, "head_dim", "task.model") if config.get("head_dim") else hidden // heads
        return layers * 2 * self.tokens * keys * width


class LayerNorm(Settings):
    """Weights and biases of the normalisation layers (Zhao et al. 2023)."""

    kind: Literal["layernorm"] = "layernorm"

    def trained(self, names: Iterable[str]) -> set[str]:
        """Return which of the model's own weights are trained."""
        return set(filter(is_norm, names))

    def count(self, pretrained: Pretrained) -> int:
        return sum(math.prod(pretrained.shapes[name]) for name in self.trained(pretrained.shapes))


Training = Annotated[Full | LastBlocks | Lora | Prefix | LayerNorm, Field(discriminator="kind")]
