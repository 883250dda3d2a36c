"""Names and shapes of a language model's tensors: those of OPT, Llama and BERT follow from the configuration."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from seedbus.models.errors import DataError

Shapes = Mapping[str, tuple[int, ...]]
LARGEST = 2**40  # weights of a tensor
_MOST_LAYERS = 10_000
_OPT_OFFSET = 2  # rows of the table of positions before the first position


def whole(config: Mapping[str, Any], name: str, where: object, most: int = LARGEST) -> int:
    """Return a whole number from 1 of a model's configuration.

    Args:
        config: the configuration.
        name: the field.
        where: what the sentence names: the file, or the field of the task.
        most: the largest number that is accepted.

    Raises:
        DataError: the field is missing or has another value.
    """
    value: Any = config.get(name)
    if not is_size(value) or not 1 <= value <= most:
        found = "no " + name if value is None else f"{name} {reprlib.repr(value)}"
        raise DataError(where, f"{found} in config.json", f"a whole number from 1 to {most}")
    return int(value)


def is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def opt_shapes(config: Mapping[str, Any], where: object) -> Shapes:
    """Return the shapes of an OPT model of this configuration, its head tied to the embedding. Raises `DataError`."""
    hidden, ffn, vocabulary, positions = (
        whole(config, name, where) for name in ("hidden_size", "ffn_dim", "vocab_size", "max_position_embeddings")
    )
    layers = whole(config, "num_hidden_layers", where, _MOST_LAYERS)
    embedding = whole(config, "word_embed_proj_dim", where) if config.get("word_embed_proj_dim") else hidden
    shapes: dict[str, tuple[int, ...]] = {
        "decoder.embed_tokens.weight": (vocabulary, embedding),
        "decoder.embed_positions.weight": (positions + _OPT_OFFSET, hidden),
    }
    if not config.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = (vocabulary, embedding)
    if embedding != hidden:
        shapes |= {"decoder.project_in.weight": (hidden, embedding), "decoder.project_out.weight": (embedding, hidden)}
    has_bias, has_affine = config.get("enable_bias", True), config.get("layer_norm_elementwise_affine", True)
    if config.get("do_layer_norm_before", True) and has_affine:
        shapes |= _affine("decoder.final_layer_norm", (hidden,))
    for layer in (f"decoder.layers.{number}" for number in range(layers)):
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            shapes |= _affine(f"{layer}.self_attn.{name}", (hidden, hidden), has_bias)
        shapes |= _affine(f"{layer}.fc1", (ffn, hidden), has_bias) | _affine(f"{layer}.fc2", (hidden, ffn), has_bias)
        if has_affine:
            shapes |= _affine(f"{layer}.self_attn_layer_norm", (hidden,)) | _affine(
                f"{layer}.final_layer_norm", (hidden,)
            )
    return shapes


def llama_shapes(config: Mapping[str, Any], where: object) -> Shapes:
    """Return the shapes of a Llama, a Qwen 2 or a Qwen 3 of this configuration. Raises `DataError`."""
    sizes = ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    hidden, inner, vocabulary, heads, keys, width = (whole(config, name, where) for name in sizes)
    kind = config.get("model_type")
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for number in range(whole(config, "num_hidden_layers", where, _MOST_LAYERS)):
        layer = f"model.layers.{number}"
        for name, rows in (("q_proj", heads), ("k_proj", keys), ("v_proj", keys)):
            shapes |= _affine(f"{layer}.self_attn.{name}", (rows * width, hidden), has_bias=kind == "qwen2")
        shapes[f"{layer}.self_attn.o_proj.weight"] = (hidden, heads * width)
        if kind == "qwen3":
            shapes |= {f"{layer}.self_attn.{name}_norm.weight": (width,) for name in ("q", "k")}
        shapes |= {f"{layer}.mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj.weight"] = (hidden, inner)
        shapes |= {f"{layer}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    shapes["model.norm.weight"] = (hidden,)
    return shapes if config.get("tie_word_embeddings", True) else shapes | {"lm_head.weight": (vocabulary, hidden)}


def bert_shapes(config: Mapping[str, Any]) -> Shapes:
    """Return the shapes of a BERT encoder of this configuration, without its pooler."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (config[size], hidden)
        for name, size in (
            ("word", "vocab_size"),
            ("position", "max_position_embeddings"),
            ("token_type", "type_vocab_size"),
        )
    }
    shapes |= _affine("embeddings.LayerNorm", (hidden,))
    for layer in (f"encoder.layer.{number}" for number in range(config["num_hidden_layers"])):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _affine(f"{layer}.attention.{name}", (hidden, hidden))
        shapes |= _affine(f"{layer}.intermediate.dense", (inner, hidden)) | _affine(
            f"{layer}.output.dense", (hidden, inner)
        )
        shapes |= _affine(f"{layer}.attention.output.LayerNorm", (hidden,)) | _affine(
            f"{layer}.output.LayerNorm", (hidden,)
        )
    return shapes


def _affine(name: str, weight: tuple[int, ...], has_bias: bool = True) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": weight} | ({f"{name}.bias": weight[:1]} if has_bias else {})


def matrix_shapes(shapes: Shapes, targets: Iterable[str]) -> list[tuple[int, ...]]:
    """Return the shapes of the matrices of all modules whose own name is one of the targets."""
    endings = tuple(f".{target}.weight" for target in targets)
    return [shape for name, shape in shapes.items() if name.endswith(endings) and len(shape) == 2]


def is_norm(name: str) -> bool:
    """True if the weight belongs to a normalisation layer: layer_norm, norm1, ln_f, …"""
    layer = name.split(".")[-2] if "." in name else ""
    return re.search(r"norm|^ln(_|$)", layer, re.IGNORECASE) is not None
