"""What a foreign model's folder may say: its JSON files are checked before transformers acts on them.

A configuration can do more than describe a model. transformers sets each unknown field as an attribute, and so a field
can have it fetch a program from a hub and run it (`_attn_implementation: kernels-community/…`), load the weights of
another model (an adapter's base, a backbone by name), or read files elsewhere (an index of weights).

The invariant: allowed is what the configuration's own class takes, what the code of that model reads, and what older
versions of transformers wrote beside it. All else is refused by its name. Of what is allowed, no text names a place,
unless it is a text for people, which nothing looks up.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import reprlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from seedbus.bounded import text_chunks
from seedbus.models.data.untrusted import regular
from seedbus.models.errors import DataError
from seedbus.models.text.published import PINNED
from seedbus.models.text.weights import INDEX, cached_folder, header_in, json_in, shard_names

_CONFIG, _GENERATION = "config.json", "generation_config.json"
_PROCESSORS = ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json")
_READ_WHOLE, _PROCESSED = (".json", ".txt", ".jinja"), (".model", ".tiktoken")
_LARGEST_WHOLE = 2**27  # bytes of a tokenizer; that of 256,000 tokens has 33 MB
_ADAPTER = "adapter_config.json"
_EVERY_CONFIG = frozenset(
    "model_type transformers_version torch_dtype _name_or_path name_or_path num_labels output_attentions "
    "tie_word_embeddings tokenizer_class rope_scaling rope_theta".split()
)
"""Fields that all configurations have besides those of their class's dataclass."""
_WRITTEN_BEFORE = frozenset(
    "_commit_hash _num_labels _attn_implementation_autoset torchscript use_bfloat16 tf_legacy_loss pruned_heads "
    "is_decoder cross_attention_hidden_size add_cross_attention tie_encoder_decoder finetuning_task prefix "
    "bos_token_id pad_token_id eos_token_id sep_token_id decoder_start_token_id task_specific_params "
    "gradient_checkpointing use_return_dict n_ctx pretraining_tp position_embedding_type classifier_dropout "
    "activation_dropout use_cache attention_bias mlp_bias".split()
)
"""Fields that transformers 3 and 4 wrote, which their classes here may lack. They are numbers, or read by nobody."""
_FOR_PEOPLE = frozenset(
    "_name_or_path name_or_path id2label label2id prefix task_specific_params finetuning_task _commit_hash "
    "transformers_version chat_template special_tokens_map_file added_tokens_decoder extra_special_tokens "
    "model_specific_special_tokens stop_strings sequence_bias label_names".split()
)
"""Fields with texts that nothing looks up: names of classes, tokens, templates."""
_TOKENS = re.compile(r"_tokens?$")
_PLACE = re.compile(r"[/\\]|^\.\.?$|^~")
_ACTS = re.compile(
    r"auto_map|_implementation|kernel_config|use_kernels|kernels_|quantization|trust_remote|transformers_weights|_plan$"
)
"""Names of fields that act."""
_LEADS = re.compile(rf"{_ACTS.pattern}|path|url|_files?$|checkpoint|pickle")
"""Names, within a value, that act or lead to a place."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = 80
_TYPES = frozenset({"float16", "float32", "float64", "bfloat16", "auto"})
_SETS = re.compile(r"""self\.(\w+)\s*(?::[^=\n]+)?=[^=]|kwargs\.(?:pop|get)\(\s*["'](\w+)["']""")
_READS = re.compile(r"""config\.([A-Za-z]\w*)|getattr\(\s*(?:self\.)?config,\s*["']([A-Za-z]\w*)["']""")


def check_foreign(model: str, head: str) -> None:
    """Refuse a folder whose files ask for more than a model that transformers knows by itself.

    Args:
        model: as `resolve` returns it: a folder, or a name; pinned names are not checked.
        head: the class of transformers that is to load the model.

    Raises:
        DataError: a file has what is not allowed, by its name; or cannot be read.
    """
    if model in PINNED:
        return
    folder = Path(model) if Path(model).is_dir() else cached_folder(model)
    if (folder / _ADAPTER).exists():
        expected = f"the whole model: `peft` merges it (`merge_and_unload`), and {_writes(head)}"
        raise DataError(folder / _ADAPTER, "an adapter, which has another model loaded", expected)
    if (folder / INDEX).exists():
        shard_names(json_in(folder / INDEX, "the index of a model in several files").get("weight_map"), folder / INDEX)
    _check_sizes(folder)
    config = json_in(folder / _CONFIG, "a JSON object")
    if (kind := _class_of(config.get("model_type"))) is not None:  # of others, transformers says that it knows none
        _check(folder / _CONFIG, config, kind, head)
    for name, allowed in ((_GENERATION, _of_generation()), *((name, None) for name in _PROCESSORS)):
        if (folder / name).exists():
            _check_texts(folder / name, json_in(folder / name, "a JSON object"), allowed, head)


def _check_sizes(folder: Path) -> None:
    """Raise `DataError` for a file that is too large to be read as a whole, or whose header announces too much."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".safetensors":
            header_in(path)
        elif path.suffix in _READ_WHOLE:
            try:
                with regular(path).open("rb") as file:
                    deque(text_chunks(file, _LARGEST_WHOLE), maxlen=0)
            except OSError as error:
                raise DataError(path, f"a file that cannot be read ({error.strerror})", "a text") from None
        elif path.is_file() and path.suffix in _PROCESSED and path.stat().st_size > _LARGEST_WHOLE:
            raise DataError(path, f"{path.stat().st_size:,} bytes", f"at most {_LARGEST_WHOLE:,}, of a tokenizer")


def _check(path: Path, config: Mapping[str, Any], kind: type, head: str, where: str = "") -> None:
    """Check the fields of a configuration, and of the configurations within it. where: its place in the file."""
    parts = getattr(kind, "sub_configs", {})
    allowed = _fields(kind) | parts.keys()
    for name, value in config.items():
        if name not in allowed:
            raise _refused(path, f"{where}{name}", value, f"which {kind.__name__} does not take", head)
        part = _part(name, value, parts)
        if part is not None:
            _check(path, value, part, head, f"{where}{name}.")
        elif name in ("dtype", "torch_dtype"):
            for each in value.values() if isinstance(value, dict) else [value]:
                if each is not None and str(each).removeprefix("torch.") not in _TYPES:
                    raise _refused(path, f"{where}{name}", each, f"no type of {', '.join(sorted(_TYPES))}", head)
        else:
            _check_value(path, f"{where}{name}", name, value, head)


def _part(name: str, value: Any, parts: Mapping[str, type]) -> type | None:
    """Return the class of a configuration within another one; None: the value is none. parts: classes by field."""
    if not isinstance(value, dict) or not (name in parts or "model_type" in value):
        return None
    part = _class_of(value.get("model_type")) or parts.get(name)
    return part if dataclasses.is_dataclass(part) and isinstance(part, type) else None


def _check_texts(path: Path, fields: Mapping[str, Any], allowed: frozenset[str] | None, head: str) -> None:
    """Check a file that configures no model; allowed: its fields, None: any whose name does not act."""
    for name, value in fields.items():
        is_free = name in _FOR_PEOPLE or _TOKENS.search(name)
        if name not in allowed if allowed is not None else not is_free and _LEADS.search(name) and value is not None:
            raise _refused(path, name, value, "which is never used", head)
        _check_value(path, name, name, value, head)


def _check_value(path: Path, where: str, name: str, value: Any, head: str) -> None:
    """Check that no text in a value names a place, and that no name in it acts."""
    if name in _FOR_PEOPLE or _TOKENS.search(name):
        return
    for keys, each in _parts(value):
        if acting := next((key for key in keys if _LEADS.search(key)), None):
            raise _refused(path, f"{where}.{acting}", each, "which is never used", head)
        if isinstance(each, str) and _PLACE.search(each):
            raise _refused(path, where, each, "the name of a place, such as a model on a hub", head)


def _parts(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what a JSON value is made of, each with the names on the way to it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _parts(each, (*keys, key))
    elif isinstance(value, list):
        for each in value:
            yield from _parts(each, keys)
    else:
        yield keys, value


def _refused(path: Path, name: str, value: Any, why: str, head: str) -> DataError:
    import transformers

    taken = f"fields that transformers {transformers.__version__} takes, as {_writes(head)} them"
    return DataError(path, f"{name} {_SHORT.repr(value)}, {why}", taken)


def _writes(head: str) -> str:
    return f"`{head}.from_pretrained(…).save_pretrained(FOLDER)` writes"


def _class_of(model_type: Any) -> type | None:
    """Return the configuration class of a type of models; None: transformers has none."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    known = isinstance(model_type, str) and model_type in CONFIG_MAPPING
    return CONFIG_MAPPING[model_type] if known else None


@cache
def _fields(kind: type) -> frozenset[str]:
    """Return the fields that a configuration of this class may have."""
    from transformers import GenerationConfig

    own = {each.name for each in dataclasses.fields(kind)}
    own |= {name for name in inspect.signature(kind).parameters if not name.startswith("_")}
    other_names: Mapping[str, str] = getattr(kind, "attribute_map", {})
    generation = GenerationConfig._get_default_generation_params().keys()  # which are taken out before they are set
    found = own | other_names.keys() | set(other_names.values()) | _EVERY_CONFIG | _WRITTEN_BEFORE | generation
    return frozenset(found | {name for name in _used_by_code(kind) if not _ACTS.search(name)})


def _used_by_code(kind: type) -> Iterable[str]:
    """Return the fields that a configuration's own code sets, or that the code of its model reads from it.

    A class may lack them among its parameters and write them all the same.
    """
    settable = (name for name in dir(kind) if getattr(inspect.getattr_static(kind, name), "fset", None) is not None)
    yield from settable
    with suppress(Exception):  # some classes have no defaults
        yield from kind().to_dict()
    for code in Path(inspect.getfile(kind)).parent.glob("*.py"):
        text = code.read_text(encoding="utf-8")
        if code.name.startswith("configuration_"):
            yield from (first or second for first, second in _SETS.findall(text))
        elif code.name.startswith("modeling_"):
            yield from (first or second for first, second in _READS.findall(text))


def _of_generation() -> frozenset[str]:
    """Return the fields that `generation_config.json` may have, of which a task uses none."""
    from transformers import GenerationConfig

    return frozenset(GenerationConfig().to_dict())
