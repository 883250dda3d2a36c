"""A model in a GGUF file: its weights are transformers' own, and what a file says that is not so is one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_gguf import begin, numbers, tensor, text, write_gguf
from small_language import bind

from seedbus.models import DataError
from seedbus.models.data.roots import Roots
from seedbus.models.errors import NotAllowed
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text.gguf_header import read_header
from seedbus.models.text.gguf_model import inspect_gguf, load_gguf
from seedbus.models.text.gguf_tokenizer import tokenizer_of
from seedbus.models.text.language_network import load
from seedbus.models.text.weights import inspect_pretrained

pytest.importorskip("gguf", reason="GGUF files need the package gguf")
pytest.importorskip("transformers", reason="GGUF files need transformers")
pytestmark = pytest.mark.usefixtures("one_thread")
CAUSAL = "AutoModelForCausalLM"
TEXTS = [" It was great", "a charming\n\n  journey isn't 42 \t</s>", "naïve “42” 日本語 😀"]


def loss_of(model: Any, ids: list[int]) -> float:
    tokens = torch.tensor([ids])
    with torch.no_grad():
        return float(model(input_ids=tokens, labels=tokens).loss)


@pytest.mark.parametrize(("kind", "packed"), [("llama", "F32"), ("llama", "Q8_0"), ("qwen2", "F16"), ("qwen3", "Q4_1")])
def test_a_model_has_the_weights_the_loss_and_the_tokens_of_transformers_own(
    tmp_path: Path, kind: str, packed: str
) -> None:
    import transformers

    written = write_gguf(tmp_path / "model.gguf", kind, packed)
    model, tokenizer = load(str(tmp_path / "model.gguf"), "float32", CAUSAL)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    state, expected = model.state_dict(), (written if packed == "F32" else theirs).state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(values, expected[name]) for name, values in state.items())
    own = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")
    tokens = [tokenizer(each)["input_ids"] for each in TEXTS]
    assert tokens == [own(each, add_special_tokens=False)["input_ids"] for each in TEXTS]
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, len(tokenizer)) == (0, 1, 400)
    for ids in tokens:
        assert loss_of(model.eval(), ids) == pytest.approx(loss_of(theirs.eval(), ids), rel=1e-6)
    if packed in ("F32", "Q8_0"):
        assert loss_of(model, tokens[1]) == pytest.approx(
            loss_of(written, tokens[1]), rel=1e-6 if packed == "F32" else 0.1
        )


@pytest.mark.slow
def test_a_task_trains_a_model_in_a_gguf_file_as_it_trains_its_folder(tmp_path: Path, texts: Path) -> None:
    (tmp_path / "gguf").mkdir()
    write_gguf(tmp_path / "gguf" / "model.gguf")
    model, tokenizer = load_gguf(tmp_path / "gguf" / "model.gguf", torch.float32, CAUSAL)
    model.save_pretrained(tmp_path / "folder")
    tokenizer.save_pretrained(tmp_path / "folder")
    named = (tmp_path / "gguf" / "model.gguf", tmp_path / "gguf", tmp_path / "folder")
    bound = [
        bind(LanguageModel.model_validate({"model": str(each), "data": str(texts / "sst2"), "validation": 0}))
        for each in named
    ]
    first, *others = [(each.x0().tobytes(), each.evaluate(each.x0(), "test"), each.identity()) for each in bound]
    assert all(other == first for other in others)
    lora = LanguageModel.model_validate({"model": str(named[0]), "train": {"kind": "lora"}})
    assert lora.dimension == 2 * 8 * (32 + 32 + 32 + 16)
    assert bind(lora.model_copy(update={"data": str(texts / "sst2")})).dimension == lora.dimension


def test_a_server_names_a_gguf_file_inside_the_roots_alone(tmp_path: Path) -> None:
    for name in ("in/model.gguf", "out/model.gguf", "in/model.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    roots = Roots([tmp_path / "in"])
    assert roots.model("model.gguf") == str(tmp_path / "in" / "model.gguf")
    for refused in ("../out/model.gguf", "model.bin"):
        with pytest.raises(NotAllowed):
            roots.model(refused)


FIELD = text("x")
LIES: dict[str, tuple[bytes, str]] = {
    "another file": (begin(mark=b"PK\3\4"), "it does not begin with GGUF"),
    "another version": (begin(version=9), "its version is 9"),
    "the other order of bytes": (b"GGUF" + b"\0\0\0\3" + bytes(16), "its version is 50331648"),
    "tensors without end": (
        begin(tensors=2**63),
        "it announces 9,223,372,036,854,775,808 tensors, and at",
    ),
    "fields without end": (begin(fields=2**40), "it announces 1,099,511,627,776 fields, and at most 4,096"),
    "fields that are missing": (begin(fields=3), "its header announces more than its 24 bytes have"),
    "a name without end": (begin(fields=1) + numbers("Q", 2**62), "bytes of a text, and at most 65,536"),
    "a text that is too long": (begin(fields=1) + FIELD + numbers("IQ", 8, 2**23), "announces more than its 45 bytes"),
    "an array without end": (begin(fields=1) + FIELD + numbers("IIQ", 9, 5, 2**60), "values of a field, and at most"),
    "an array that is too long": (begin(fields=1) + FIELD + numbers("IIQ", 9, 5, 2**22), "more than its 49 bytes have"),
    "texts that are missing": (begin(fields=1) + FIELD + numbers("IIQ", 9, 8, 2**22), "more than its 49 bytes have"),
    "an array of arrays": (begin(fields=1) + FIELD + numbers("IIQ", 9, 9, 1), "a field has the type 9"),
    "a type of fields": (begin(fields=1) + FIELD + numbers("I", 77), "a field has the type 77, of which there is none"),
    "no text": (begin(fields=1) + numbers("Q", 2) + b"\xff\xfe", "can't decode"),
    "a field twice": (begin(fields=2) + (FIELD + numbers("IB", 0, 1)) * 2, "it has 'x' twice"),
    "an alignment of 0": (begin(fields=1) + text("general.alignment") + numbers("II", 4, 0), "general.alignment is 0"),
    "a tensor twice": (begin(2) + tensor("w", 8) * 2 + bytes(64), "it has 'w' twice"),
    "five dimensions": (begin(1) + tensor("w", 1, 1, 1, 1, 1) + bytes(64), "5 dimensions of 'w'"),
    "no dimension": (begin(1) + tensor("w") + bytes(64), r"the shape \(\)"),
    "a type of tensors": (begin(1) + tensor("w", 8, kind=99) + bytes(64), "'w' has the type 99"),
    "half a block": (begin(1) + tensor("w", 48, kind=8) + bytes(64), "blocks of 32 weights"),
    "a tensor beyond the end": (begin(1) + tensor("w", 8, at=2**40) + bytes(64), "ends at byte 1,099,511,"),
    "weights beyond the end": (begin(1) + tensor("w", 2**62, 2**62) + bytes(64), "of shape .* ends at byte"),
    "tensors in one place": (
        begin(2) + tensor("v", 8) + tensor("w", 8, at=16) + bytes(99),
        "'w' begins within",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_header_that_lies_is_one_sentence(tmp_path: Path, name: str) -> None:
    content, found = LIES[name]
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(DataError, match=f"model.gguf: found no GGUF file that can be read .*{found}") as raised:
        inspect_pretrained(str(tmp_path))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


def test_an_array_of_architectures_is_one_sentence(tmp_path: Path) -> None:
    listed = text("general.architecture") + numbers("IIQ", 9, 8, 1) + text("llama")
    (tmp_path / "model.gguf").write_bytes(begin(fields=1) + listed)
    with pytest.raises(DataError, match=r"found the architecture \['llama'\]; expected llama, qwen2, qwen3; or"):
        inspect_gguf(tmp_path / "model.gguf")


def test_no_beginning_of_a_file_is_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    whole = path.read_bytes()
    ends = read_header(path).tensors.values()
    for length in [*range(0, 600, 7), *range(600, len(whole), 4001), max(each.begin + each.size for each in ends) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="found no GGUF file that can be read"):
            inspect_gguf(path)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"general__architecture": "gpt2"}, "the architecture 'gpt2'; expected llama, qwen2, qwen3; or a folder"),
    ({"llama__rope__scaling__type": "yarn"}, "llama.rope.scaling.type 'yarn', which is not read"),
    ({"llama__block_count": 2**31}, "llama.block_count 2,147,483,648 and 21 tensors"),
    (
        {"llama__block_count": 3},
        r"model.layers.2.self_attn.q_proj.weight missing; expected shape \(32, 32\)",
    ),
    ({"llama__block_count": 1}, r"the tensor model.layers.1.* of shape .*; expected no such tensor"),
    ({"llama__block_count": None}, "no llama.block_count; expected a whole number from 1"),
    ({"llama__context_length": 0}, "llama.context_length 0; expected a whole number"),
    ({"llama__feed_forward_length": [64, 64]}, r"llama.feed_forward_length \[64, 64\]; expected a whole number"),
    ({"llama__embedding_length": 64}, r"embed_tokens.weight of shape \(400, 32\); expected shape \(400, 64\)"),
    ({"llama__embedding_length": 2**41}, "llama.embedding_length 2199023255552"),
    ({"llama__attention__head_count_kv": 3}, r"4 heads, 3 of keys, of \[8\] weights each"),
    ({"llama__attention__value_length": 16}, r"4 heads, 2 of keys, of \[8, 16\] weights each"),
    ({"llama__attention__layer_norm_rms_epsilon": float("nan")}, "rms_epsilon nan; expected a number above 0"),
    ({"llama__rope__freq_base": -1.0}, "rope.freq_base -1.0"),
    ({"llama__vocab_size": 401}, "400 tokens, a vocabulary of 401 and embeddings for 400; expected one vocabulary"),
    ({"tokenizer__ggml__tokens": None}, "no list of tokens"),
    ({"tokenizer__ggml__eos_token_id": 400}, "eos_token_id 400; expected a token's number, below 400"),
    ({"rope_freqs__weight": np.ones(4)}, "the tensor 'rope_freqs.weight', which is not read"),
    (
        {"blk__1__ffn_up__weight": np.ones((64, 64))},
        r"up_proj.weight of shape \(64, 64\); expected shape \(64, 32\)",
    ),
]


@pytest.mark.parametrize(
    ("changes", "found"), WRONG, ids=lambda each: next(iter(each)) if isinstance(each, dict) else ""
)
def test_a_model_that_is_not_what_its_fields_say_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    write_gguf(tmp_path / "model.gguf", **changes)
    with pytest.raises(DataError, match=f"model.gguf: found .*{found}") as raised:
        inspect_pretrained(str(tmp_path / "model.gguf"))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"model": "llama"}, "a tokenizer of the kind 'llama'; expected gpt2"),
        ({"pre": "tekken"}, "tokenizer.ggml.pre 'tekken'; expected gpt-2, smollm, llama-bpe, qwen2"),
        ({"model": ["gpt2"]}, r"a tokenizer of the kind \['gpt2'\]; expected gpt2"),
        ({"pre": ["qwen2"]}, r"tokenizer.ggml.pre \['qwen2'\]; expected gpt-2, smollm"),
        ({"merges": ["a b", "c"]}, "the merge 'c'; expected two tokens"),
        ({"merges": ["q qq"]}, "merges that make no tokenizer"),
        ({"merges": None}, "no list of different tokens with their merges"),
        ({"tokens": ["a", "a"]}, "no list of different tokens"),
        ({"token_type": [1]}, "types that are not those of its 400 tokens"),
        ({"unknown_token_id": 400}, "tokenizer.ggml.unknown_token_id 400"),
    ],
)
def test_a_tokenizer_that_contradicts_itself_is_one_sentence(
    tmp_path: Path, changes: dict[str, Any], found: str
) -> None:
    write_gguf(tmp_path / "model.gguf")
    fields = read_header(tmp_path / "model.gguf").fields
    fields |= {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    with pytest.raises(DataError, match=f"found {found}"):
        tokenizer_of(fields, tmp_path / "model.gguf")


def test_llama_3_and_smollm_split_digits_as_their_own_tokenizers_do(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf")
    fields = read_header(tmp_path / "model.gguf").fields
    pieces = {}
    for name in ("gpt-2", "smollm", "llama-bpe", "qwen2"):
        tokenizer = tokenizer_of(fields | {"tokenizer.ggml.pre": name}, tmp_path)
        split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("isn't 12345 now!\n\nYes")
        pieces[name] = [piece for piece, _ in split]
    assert pieces == {
        "gpt-2": ["isn", "'t", "Ġ12345", "Ġnow", "!", "Ċ", "Ċ", "Yes"],
        "smollm": ["isn", "'t", "Ġ", "1", "2", "3", "4", "5", "Ġnow", "!", "Ċ", "Ċ", "Yes"],
        "llama-bpe": ["isn", "'t", "Ġ", "123", "45", "Ġnow", "!ĊĊ", "Yes"],
        "qwen2": ["isn", "'t", "Ġ", "1", "2", "3", "4", "5", "Ġnow", "!ĊĊ", "Yes"],
    }


def test_qwen_2_composes_letters_and_llama_3_takes_whole_tokens(tmp_path: Path) -> None:
    import transformers

    write_gguf(tmp_path / "model.gguf")
    fields = read_header(tmp_path / "model.gguf").fields
    tokens, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    tokens[-1] = "zqxj"  # a token to which no merges lead
    composed, decomposed = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
    found = {
        name: [tokenizer(each)["input_ids"] for each in (composed, decomposed, "zqxj")]
        for name in ("gpt-2", "smollm", "llama-bpe", "qwen2")
        for tokenizer in [tokenizer_of(fields | {"tokenizer.ggml.pre": name}, tmp_path)]
    }
    numbered = {token: number for number, token in enumerate(tokens)}
    theirs = transformers.Qwen2Tokenizer(numbered, [tuple(merge.split(" ")) for merge in merges])
    assert found["qwen2"] == [theirs(each)["input_ids"] for each in (composed, decomposed, "zqxj")]
    assert {name for name, (one, other, _) in found.items() if one == other} == {"qwen2"}
    assert {name for name, (_, _, whole) in found.items() if whole == [399]} == {"llama-bpe"}


def test_several_files_another_head_and_a_missing_package_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.gguf"
    write_gguf(path)
    with pytest.raises(DataError, match=r"a\.gguf: found a causal language model; expected a folder that `AutoModel"):
        load(str(path), "float32", "AutoModelForSequenceClassification")
    (tmp_path / "b.gguf").touch()
    with pytest.raises(DataError, match=r"found 2 GGUF files; expected one, or a path such as .*a\.gguf"):
        inspect_pretrained(str(tmp_path))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(DataError, match=r"found no package gguf .*; expected `pip install \"seedbus\[hub\]\"`"):
        inspect_pretrained(str(path))
