"""Language models: the trained parameters, the identity of the frozen ones, and the use of samples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_language import ARTICLE, bind, write, write_model

from seedbus.models import Dirichlet
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text.files import read
from seedbus.models.text.language_network import load
from seedbus.models.text.weights import inspect_pretrained


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"word_embed_proj_dim": 8, "do_layer_norm_before": False},
        {"tie_word_embeddings": False},
        {"enable_bias": False, "layer_norm_elementwise_affine": False},
    ],
    ids=str,
)
def test_the_configuration_tells_what_the_model_has(tmp_path: Path, opt: Path, changes: dict[str, Any]) -> None:
    from safetensors import safe_open

    folder = write_model(tmp_path, **changes)
    with safe_open(folder / "model.safetensors", "np") as file:
        stored = {name.removeprefix("model."): tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    assert dict(inspect_pretrained(str(folder)).shapes) == stored


def test_published_sizes_are_known_without_a_file() -> None:
    sizes = {"125m": 125_239_296, "350m": 331_196_416, "1.3b": 1_315_758_080, "2.7b": 2_651_596_800}
    for name, size in sizes.items():
        assert LanguageModel(model=f"facebook/opt-{name}").dimension == size
    lora = LanguageModel.model_validate({"train": {"kind": "lora"}})
    assert lora.dimension == 12 * 2 * 8 * (768 + 768)


def test_a_model_of_another_family_is_known_by_its_header(tmp_path: Path, texts: Path, opt: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shutil.copytree(opt, tmp_path, dirs_exist_ok=True)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    more: dict[str, Any] = {"num_key_value_heads": 2, "intermediate_size": 24, "vocab_size": 400}
    LlamaForCausalLM(LlamaConfig(**sizes, **more)).save_pretrained(tmp_path)
    for kind in ("full", "lora", "prefix", "layernorm"):
        fields = {"model": str(tmp_path), "data": str(texts / "sst2"), "train": {"kind": kind}}
        problem = bind(LanguageModel.model_validate(fields))
        assert problem.evaluate(problem.x0(), "test")["loss"] < 20


def test_opts_own_files_are_the_same_model(
    tmp_path: Path, opt: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's cache of facebook/opt-* has these files: vocab.json, merges.txt, a pickle without the outer prefix."""
    from huggingface_hub import constants
    from safetensors.torch import load_file

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "27dcfa74d334bc871f3234de431e71c6eeba5dd6"
    folder = shutil.copytree(opt, tmp_path / "models--facebook--opt-125m" / "snapshots" / commit)
    bpe = json.loads((folder / "tokenizer.json").read_text())["model"]
    write(folder / "vocab.json", json.dumps(bpe["vocab"]))
    write(folder / "merges.txt", "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in bpe["merges"]))
    ends = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "</s>") | {"pad_token": "<pad>"}
    settings: dict[str, Any] = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}
    write(folder / "tokenizer_config.json", json.dumps(ends | settings))
    weights = {name.removeprefix("model."): each for name, each in load_file(folder / "model.safetensors").items()}
    torch.save(weights, folder / "pytorch_model.bin")
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).unlink()
    ours, (theirs, tokenizer) = bind(make()), load("facebook/opt-125m", "float32", "AutoModelForCausalLM")
    for words in (tokenizer, ours.network.tokenizer):
        assert words("a great film", add_special_tokens=False).input_ids == [66, 274, 294]
    for name, tensor in load_file(opt / "model.safetensors").items():
        assert torch.equal(theirs.state_dict()[name], tensor)


def test_additions_change_nothing_at_first_and_the_frozen_weights_never(make: Any) -> None:
    plain, lora = bind(make()), bind(make(train={"kind": "lora"}))
    assert lora.evaluate(lora.x0(), "test") == plain.evaluate(plain.x0(), "test")
    before = lora.identity()
    x = lora.x0()
    assert 0 < np.count_nonzero(x) < x.size, "A is drawn and B is nothing"
    lora.evaluate(x + 1, "test")
    assert lora.identity() == before
    assert lora.evaluate(x + np.float32(0.1), "test") != plain.evaluate(plain.x0(), "test")


def test_half_weights_are_stored_as_such_and_computed_with_in_float32(make: Any) -> None:
    half, exact = bind(make(train={"kind": "lora"}, dtype="bfloat16")), bind(make())
    stored = {name: p for name, p in half.network._outer.named_parameters() if not p.requires_grad}
    assert {p.dtype for p in stored.values()} == {torch.bfloat16}
    assert sum(p.numel() for p in stored.values()) == exact.dimension, "the tied embedding is stored once"
    rounded = torch.from_numpy(exact.x0()).bfloat16().float().numpy()
    assert half.evaluate(half.x0(), "test") == exact.evaluate(rounded, "test")


def test_what_is_written_out_is_what_transformers_loads(opt: Path, make: Any) -> None:
    from transformers import AutoModelForCausalLM

    problem = bind(make())
    x = problem.x0() + np.float32(0.01)
    model = AutoModelForCausalLM.from_pretrained(opt)
    tensors = {name: torch.from_numpy(tensor) for name, tensor in problem.state_dict(x).items()}
    loaded = model.load_state_dict(tensors, strict=False)
    assert loaded.missing_keys == ["lm_head.weight"] and not loaded.unexpected_keys
    assert torch.equal(model.lm_head.weight, tensors["model.decoder.embed_tokens.weight"])


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_a_lora_that_is_written_out_is_what_peft_loads(opt: Path, make: Any) -> None:
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    from transformers import AutoModelForCausalLM

    problem = bind(make(train={"kind": "lora", "rank": 4, "alpha": 8}))
    x = problem.x0() + np.float32(0.01)
    written = {name: torch.from_numpy(tensor) for name, tensor in problem.state_dict(x).items()}
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(opt), config)
    loaded = set_peft_model_state_dict(model, written)
    assert not loaded.unexpected_keys and not [name for name in loaded.missing_keys if "lora_" in name]
    theirs = {name.replace(".default", ""): value for name, value in model.named_parameters() if "lora_" in name}
    assert theirs.keys() == written.keys() and all(torch.equal(theirs[name], each) for name, each in written.items())


def test_the_identity_is_of_all_that_x_does_not_show(tmp_path: Path, opt: Path, texts: Path, make: Any) -> None:
    same = [bind(make(train={"kind": "lora"}), seed=3, clients=clients).identity() for clients in (1, 2)]
    assert same[0] == same[1]
    words = shutil.copytree(opt, tmp_path / "words")
    file = words / "tokenizer.json"
    configuration = json.loads(file.read_text())
    configuration["model"]["merges"].pop(0)
    file.write_text(json.dumps(configuration))
    more = shutil.copytree(texts / "sst2", tmp_path / "more")
    write(more / "dev.tsv", "sentence\tlabel\nno wit\t0\n")
    others = [{"model": str(write_model(tmp_path / "weights", seed=2))}, {"model": str(words)}, {"data": str(more)}]
    loaded = {bind(make(train={"kind": "lora"}, **fields), seed=3).identity() for fields in others}
    assert len(loaded | {same[0]}) == 4


# Selection of samples


def test_a_few_shots_are_so_many_of_each_class_and_drawn_by_seed(make: Any) -> None:
    tasks = [make(shots=2, validation=0).load(seed)[0]["train"] for seed in (1, 1, 2)]
    assert [sorted(sample.label for sample in each) for each in tasks] == [[0, 0, 1, 1]] * 3
    assert tasks[0] == tasks[1] != tasks[2]
    assert len(make("squad", shots=3, validation=0).load(1)[0]["train"]) == 3


def test_what_is_held_out_is_the_same_whatever_the_seed(make: Any) -> None:
    one, other = (make(validation=0.25).load(seed)[0] for seed in (1, 2))
    assert one == other and len(one["validation"]) == 6 and len(one["train"]) == 18


def test_an_evaluation_measures_no_more_samples_than_it_should(make: Any) -> None:
    few = make(evaluated=3)
    chosen = few.evaluated_indices(6)
    assert chosen.size == 3 and np.array_equal(chosen, few.evaluated_indices(6))
    problem = bind(few)
    problem.evaluate(problem.x0(), "test")
    assert sum(split == "test" for split, _ in problem._encoded) == 3


def test_classes_are_divided_by_dirichlet(make: Any) -> None:
    task = make(validation=0)
    problem = task.bind(seed=1, clients=3, partition=Dirichlet(alpha=0.1))
    assert sorted(problem.samples(client) for client in range(3)) == [8, 8, 8]


def test_squad_without_a_training_file_keeps_whole_articles_for_the_test(tmp_path: Path) -> None:
    articles = [ARTICLE | {"title": f"Article {number}"} for number in range(10)]
    write(tmp_path / "dev-v1.1.json", json.dumps({"data": articles}))
    train, test = read("squad", str(tmp_path))
    assert len(train) == 16 and {sample.fields["title"] for sample in test} == {"Article 0", "Article 5"}
