"""A causal language model in a GGUF file, as what a folder of transformers would say: configuration, shapes, weights.

Packed weights are unpacked to float32 by the package `gguf`, one at a time, with operations that IEEE 754 rounds; so
all processes that have the file have the same weights. llama.cpp stores the rows of a Llama's queries and keys in
another order than transformers (its rotation takes neighbouring rows, transformers' takes row i with row i + half), and
they are put back.

The invariant: each tensor and each field of the model's own is used as it is meant, or the file is refused by its name.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.models.errors import DataError
from seedbus.models.text.gguf_header import SUFFIX, Header, Place, read_header
from seedbus.models.text.shapes import LARGEST, Shapes, is_size, llama_shapes

_CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
_NUMBERS = {"rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base"}
_KEYS, _VOCABULARY = "attention.head_count_kv", "vocab_size"
_WIDTHS = ("rope.dimension_count", "attention.key_length", "attention.value_length")  # each is the width of a head
_READ = frozenset({*_SIZES.values(), *_NUMBERS.values(), _KEYS, _VOCABULARY, *_WIDTHS})
_TOKENS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(?P<layer>0|[1-9]\d{0,4})\.)?(?P<part>\w+)\.(?P<end>weight|bias)")


def gguf_in(model: str) -> Path | None:
    """Return the GGUF file that a path names, or the only one in a folder without config.json; None: there is none.

    Raises:
        DataError: the folder has several.
    """
    if model.endswith(SUFFIX) and os.path.isfile(model):  # unlike Path's, these answer for any text
        return Path(model)
    if not os.path.isdir(model) or os.path.exists(os.path.join(model, "config.json")):
        return None
    path = Path(model)
    found = sorted(path.glob(f"*{SUFFIX}"))
    if len(found) > 1:
        raise DataError(path, f"{len(found)} GGUF files", f"one, or a path such as {found[0]}")
    return found[0] if found else None


def inspect_gguf(path: Path) -> tuple[dict[str, Any], Shapes]:
    """Return the configuration and the shapes of a model, by transformers' names. Raises `DataError`."""
    header = read_header(path)
    config = _config(header, path)
    shapes = llama_shapes(config, path)
    _check_tensors(header, shapes, path)
    return config, shapes


def weights_of(path: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the name and the values of each tensor, in float32. Raises `DataError`."""
    header = read_header(path)
    config, names = _config(header, path), _names(header, path)
    for name, place in header.tensors.items():
        values = _unpacked(path, name, place)
        kind = names[name].rpartition(".")[0].rpartition(".")[2]
        if config["model_type"] == "llama" and kind in ("q_proj", "k_proj"):
            heads = config["num_attention_heads" if kind == "q_proj" else "num_key_value_heads"]
            halves = values.reshape(heads, place.shape[0] // heads // 2, 2, -1).swapaxes(1, 2)
            values = np.ascontiguousarray(halves).reshape(place.shape)
        yield names[name], values


def _config(header: Header, path: Path) -> dict[str, Any]:
    """Return the configuration, as transformers names its fields. Raises `DataError`."""
    kind = header.fields.get("general.architecture")
    if not isinstance(kind, str) or kind not in _CLASSES:
        found = f"the architecture {reprlib.repr(kind)}"
        raise DataError(path, found, f"{', '.join(_CLASSES)}; or a folder of safetensors, for any causal model")
    own = {name.partition(".")[2]: value for name, value in header.fields.items() if name.startswith(f"{kind}.")}
    if unread := sorted(own.keys() - _READ):
        found = f"{kind}.{unread[0]} {reprlib.repr(own[unread[0]])}, which is not read"
        raise DataError(path, found, f"{kind}.* of {', '.join(sorted(_READ))}")
    config: dict[str, Any] = {"model_type": kind, "architectures": [_CLASSES[kind]]}
    for name, field in _SIZES.items():
        config[name] = _size(own.get(field), f"{kind}.{field}", path)
    for name, field in _NUMBERS.items():
        value = own.get(field, 1e4 if name == "rope_theta" else None)
        if not isinstance(value, float) or not 0 < value < math.inf:
            raise DataError(path, f"{kind}.{field} {reprlib.repr(value)}", "a number above 0")
        config[name] = value
    if (blocks := config["num_hidden_layers"]) > len(header.tensors):
        raise DataError(
            path, f"{kind}.block_count {blocks:,} and {len(header.tensors)} tensors", "one for each, or more"
        )
    heads = config["num_attention_heads"]
    keys = config["num_key_value_heads"] = _size(own.get(_KEYS, heads), f"{kind}.{_KEYS}", path)
    widths = {_size(own[field], f"{kind}.{field}", path) for field in _WIDTHS if field in own}
    config["head_dim"] = min(widths, default=max(1, config["hidden_size"] // heads))
    if len(widths) > 1 or heads % keys or config["head_dim"] % 2:
        found = f"{heads} heads, {keys} of keys, of {sorted(widths) or [config['head_dim']]} weights each"
        raise DataError(path, found, f"one even {', '.join(_WIDTHS)}, and heads that those of keys divide")
    return config | _of_tokens(header, own.get(_VOCABULARY), path)


def _of_tokens(header: Header, vocabulary: Any, path: Path) -> dict[str, Any]:
    """Return what a configuration says of the vocabulary. Raises `DataError`."""
    embedding, tokens = header.tensors.get("token_embd.weight"), header.fields.get("tokenizer.ggml.tokens")
    rows = 0 if embedding is None else embedding.shape[0]
    if not isinstance(tokens, list) or len(tokens) > rows or vocabulary not in (None, rows):
        named = "no list of tokens" if not isinstance(tokens, list) else f"{len(tokens):,} tokens"
        found = f"{named}, a vocabulary of {reprlib.repr(vocabulary)} and embeddings for {rows:,}"
        raise DataError(path, found, "one vocabulary")
    ids = {name: header.fields.get(f"tokenizer.ggml.{field}") for name, field in _TOKENS.items()}
    for name, number in ids.items():
        if number is not None and not (is_size(number) and number < len(tokens)):
            raise DataError(path, f"{name} {reprlib.repr(number)}", f"a token's number, below {len(tokens):,}")
    return {"vocab_size": rows, "tie_word_embeddings": "output.weight" not in header.tensors} | ids


def _size(value: Any, field: str, path: Path) -> int:
    if not is_size(value) or not value:
        found = f"no {field}" if value is None else f"{field} {reprlib.repr(value)}"
        raise DataError(path, found, f"a whole number from 1 to {LARGEST}")
    return int(value)


def _names(header: Header, path: Path) -> dict[str, str]:
    """Return transformers' name of each tensor. Raises `DataError` for one that has none."""
    names = {}
    for name in header.tensors:
        match = _NAME.fullmatch(name)
        table = _OUTER if match is not None and match["layer"] is None else _INNER
        if match is None or match["part"] not in table:
            raise DataError(path, f"the tensor {reprlib.repr(name)}, which is not read", "tensors of a Llama or a Qwen")
        layer = "" if match["layer"] is None else f"model.layers.{match['layer']}."
        names[name] = f"{layer}{table[match['part']]}.{match['end']}"
    return names


def _check_tensors(header: Header, shapes: Shapes, path: Path) -> None:
    """Raise `DataError` unless the file has exactly the tensors of its configuration."""
    names = _names(header, path)
    found: Mapping[str, tuple[int, ...]] = {names[name]: place.shape for name, place in header.tensors.items()}
    for name in [*shapes, *found]:
        if found.get(name) != shapes.get(name):
            there = f"of shape {found[name]}" if name in found else "missing"
            fits = f"shape {shapes[name]}" if name in shapes else "no such tensor"
            raise DataError(path, f"the tensor {name} {there}", f"{fits}, as its own fields say")


def _unpacked(path: Path, name: str, place: Place) -> NDArray[np.float32]:
    """Return the values of a tensor, float32. Raises `DataError`."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    packed = np.fromfile(path, np.uint8, place.size, offset=place.begin)
    kind = GGMLQuantizationType(place.kind)
    if packed.nbytes < place.size:  # it has become shorter
        raise DataError(path, f"{packed.nbytes:,} bytes of {name}", f"{place.size:,}")
    try:
        values = dequantize(packed.reshape(*place.shape[:-1], -1), kind)
    except NotImplementedError:
        raise DataError(path, f"{name} of the type {kind.name}", "a type that the package gguf unpacks") from None
    return np.asarray(values, np.float32).reshape(place.shape)


def load_gguf(path: Path, dtype: Any, head: str) -> tuple[Any, Any]:
    """Return the model, as transformers has it, and its tokenizer.

    Args:
        path: the file.
        dtype: the torch type of its weights.
        head: the class of transformers that is to load the model.

    Raises:
        DataError: the file is no model of this class, or cannot be read.
    """
    import torch
    import transformers

    from seedbus.models.text.gguf_tokenizer import tokenizer_of

    if head != "AutoModelForCausalLM":
        written = f"`{head}.from_pretrained(…).save_pretrained(FOLDER)` writes"
        raise DataError(path, "a causal language model", f"a folder that {written}")
    config, _ = inspect_gguf(path)
    own = transformers.AutoConfig.for_model(
        **{name: value for name, value in config.items() if name != "architectures"}
    )
    state = {name: torch.from_numpy(values).to(dtype) for name, values in weights_of(path)}
    model = getattr(transformers, config["architectures"][0]).from_pretrained(
        None, config=own, state_dict=state, dtype=dtype
    )
    return model, tokenizer_of(read_header(path).fields, path)
