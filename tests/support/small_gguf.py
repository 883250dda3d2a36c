"""A tiny Llama or Qwen in a GGUF file, written by the package gguf, and what a file may say that is not so."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from small_language import write_tokenizer

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 400,
    "max_position_embeddings": 96,
    "rope_theta": 5000.0,
    "initializer_range": 0.3,
}
FIELDS = {
    "context_length": 96,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "block_count": 2,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 5000.0,
}
NAMES = (  # of transformers, in their order, and of llama.cpp
    ("model.embed_tokens", "token_embd"),
    ("model.layers.", "blk."),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.", "attn_"),
    ("_proj", ""),
    ("mlp.", "ffn_"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
)


def write_gguf(path: Path, kind: str = "llama", packed: str = "F32", **changes: Any) -> Any:
    """Write a model of random weights, and return it as transformers has it.

    Args:
        path: the file.
        kind: llama, qwen2 or qwen3.
        packed: the type of matrices.
        changes: fields that the file has instead, by their names with `__` for a dot; None: it has none of that name;
            and tensors likewise, as arrays.
    """
    import torch
    import transformers
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize

    torch.manual_seed(0)
    width = 128 if kind == "qwen3" else 8  # transformers' own reader takes no other of a Qwen 3
    own = transformers.AutoConfig.for_model(kind, **SIZES | {"head_dim": width}, tie_word_embeddings=kind != "llama")
    model = transformers.AutoModelForCausalLM.from_config(own).eval()
    if kind == "qwen2":
        for name, bias in model.named_parameters():
            torch.nn.init.normal_(bias) if name.endswith("bias") else None
    sizes = FIELDS | {"attention.key_length": width}
    fields = {f"{kind}.{name}": value for name, value in sizes.items()} | _tokenizer_fields(path.parent)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and kind != "llama":
            continue
        if kind == "llama" and ("q_proj" in name or "k_proj" in name):  # neighbouring rows are rotated together
            tensor = tensor.view(-1, 2, 4, 32).transpose(1, 2).reshape(tensor.shape)
        for theirs, its in NAMES:
            name = name.replace(theirs, its)
        tensors[name] = tensor.numpy()
    for name, value in changes.items():
        where = tensors if isinstance(value, np.ndarray) or name.replace("__", ".") in tensors else fields
        where[name.replace("__", ".")] = value
    writer = GGUFWriter(path, fields.pop("general.architecture", None) or kind)
    for name, value in fields.items():
        _add(writer, name, value)
    for name, values in tensors.items():
        if values is not None:
            to = GGMLQuantizationType[packed if values.ndim > 1 else "F32"]
            writer.add_tensor(name, quantize(values.astype(np.float32), to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _tokenizer_fields(folder: Path) -> dict[str, Any]:
    """Return the fields of the tokenizer of `small_language`, filled up to 400 tokens."""
    import json

    backend = json.loads(write_tokenizer(folder / "tokenizer").backend_tokenizer.to_str())
    tokens = sorted(backend["model"]["vocab"], key=backend["model"]["vocab"].get)
    filled = [*tokens, *(f"[PAD{number}]" for number in range(400 - len(tokens)))]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in backend["model"]["merges"]]
    own = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": filled,
        "token_type": [3, 3, *[1] * 398],
        "merges": merges,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "padding_token_id": 1,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in own.items()}


def _add(writer: Any, name: str, value: Any) -> None:
    if value is None:
        return
    of_type = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}[type(value)]
    if isinstance(value, int) and not 0 <= value < 2**32:
        of_type = "uint64" if value > 0 else "int32"
    getattr(writer, f"add_{of_type}")(name, value)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def numbers(form: str, *values: float) -> bytes:
    return struct.pack(f"<{form}", *values)


def begin(tensors: int = 0, fields: int = 0, mark: bytes = b"GGUF", version: int = 3) -> bytes:
    """Return the begin of a file with so many tensors and fields."""
    return mark + numbers("IQQ", version, tensors, fields)


def tensor(name: str, *shape: int, kind: int = 0, at: int = 0) -> bytes:
    """Return a tensor's entry in a header."""
    return text(name) + numbers("I", len(shape)) + numbers(f"{len(shape)}Q", *shape) + numbers("IQ", kind, at)
