"""The tokenizer in a GGUF file: byte-level BPE, whose tokens, merges and special tokens are fields of the file.

What happens to a text before merging is not in the file, which only names it (`tokenizer.ggml.pre`). Known are the ways
of GPT-2, SmolLM (GPT-2's, with each digit alone), Llama 3 and Qwen 2, as their own tokenizer.json files have them:
Llama 3 merges nothing in a piece that is a token itself, and Qwen 2 composes accented letters first (Unicode's NFC).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbus.models.errors import DataError

_CONTROL, _OWN = 3, 4  # types of tokens that are found in a text before it is split
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_GPT_2 = ("gpt-2", "gpt2", "default")
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3, _QWEN_2 = "llama-bpe", "qwen2"
_SPLITS = {_LLAMA_3: rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}", _QWEN_2: rf"{_WORDS}|\p{{N}}|{_REST}"}


def tokenizer_of(fields: Mapping[str, Any], path: Path) -> Any:
    """Return the tokenizer of a file, as transformers has it.

    Args:
        fields: of the file's header.
        path: the file, for sentences.

    Raises:
        DataError: the tokenizer is of another kind, or its fields contradict each other.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    own = {name.removeprefix("tokenizer.ggml."): value for name, value in fields.items() if "tokenizer." in name}
    if own.get("model") != "gpt2":
        found = f"a tokenizer of the kind {reprlib.repr(own.get('model'))}"
        raise DataError(path, found, "gpt2, which is byte-level BPE; or a folder with tokenizer.json")
    tokens, merges, types = _lists(own, path)
    numbers, way = {token: number for number, token in enumerate(tokens)}, own.get("pre", "default")
    try:
        tokenizer = Tokenizer(models.BPE(numbers, merges, ignore_merges=way == _LLAMA_3))
    except Exception as error:  # tokenizers raises plain exceptions
        raise DataError(path, f"merges that make no tokenizer ({error})", "pairs of its tokens") from None
    tokenizer.pre_tokenizer = _before_merging(way, path)
    if way == _QWEN_2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_OWN, tokenizer.add_tokens)):
        add([AddedToken(token, normalized=False) for token, each in zip(tokens, types, strict=True) if each == kind])
    named = {name: own.get(f"{field}_token_id") for name, field in _SPECIAL.items()}
    special = {name: tokens[number] for name, number in named.items() if number is not None}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _lists(own: Mapping[str, Any], path: Path) -> tuple[list[str], list[tuple[str, str]], list[int]]:
    """Return tokens, merges and the types of tokens. Raises `DataError`."""
    tokens: Any = own.get("tokens")
    merges: Any = own.get("merges")
    if not _are(tokens, str) or not _are(merges, str) or len(set(tokens or ())) < len(tokens or ()):
        raise DataError(path, "no list of different tokens with their merges", "tokenizer.ggml.tokens and .merges")
    types = own.get("token_type", [0] * len(tokens))
    if not _are(types, int) or len(types) != len(tokens):
        raise DataError(path, f"types that are not those of its {len(tokens):,} tokens", "tokenizer.ggml.token_type")
    for name in _SPECIAL.values():
        number = own.get(f"{name}_token_id")
        if number is not None and not (isinstance(number, int) and 0 <= number < len(tokens)):
            found = f"tokenizer.ggml.{name}_token_id {reprlib.repr(number)}"
            raise DataError(path, found, f"a token's number, below {len(tokens):,}")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if wrong := next((merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2), None):
        raise DataError(path, f"the merge {reprlib.repr(wrong)}", "two tokens with a space between them")
    return tokens, pairs, types


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(each, kind) for each in values)


def _before_merging(name: Any, path: Path) -> Any:
    """Return how a text is split before merging. Raises `DataError`."""
    from tokenizers import Regex, pre_tokenizers

    if name in _GPT_2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if isinstance(name, str) and name in _SPLITS:
        first = pre_tokenizers.Split(Regex(_SPLITS[name]), behavior="isolated")
        return pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    known = ", ".join([_GPT_2[0], "smollm", *_SPLITS])
    raise DataError(path, f"tokenizer.ggml.pre {reprlib.repr(name)}", f"{known}; or a folder with tokenizer.json")
