"""Causal models of many families, from folders: their losses, their layers, and tokenizers without a padding token."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_language import bind, write_tokenizer
from torch.nn.functional import log_softmax

from seedbus.models import DataError
from seedbus.models.tasks.language_model import LanguageModel

pytestmark = [pytest.mark.usefixtures("one_thread", "opt"), pytest.mark.slow]

_LLAMA: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "vocab_size": 400,
    "max_position_embeddings": 96,
    "initializer_range": 0.3,
}
FAMILIES: dict[str, tuple[str, dict[str, Any], int]] = {  # configuration, its sizes, and the coordinates of LoRA
    "opt": ("OPTConfig", {"word_embed_proj_dim": 16, "ffn_dim": 24, "init_std": 0.3}, 1024),  # learnt positions, tied
    "llama": ("LlamaConfig", {"tie_word_embeddings": False}, 1280),  # rotary, fewer keys than queries
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True}, 896),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": True}, 1280),  # normalised queries
    "gemma": ("GemmaConfig", {}, 1280),  # scaled embeddings, norms of 1 + w
    "gemma2": ("Gemma2Config", {"final_logit_softcapping": 2.0, "sliding_window": 4}, 1280),
    "gpt2": ("GPT2Config", {}, 1024),  # one layer for queries, keys and values, stored transposed
    "bloom": ("BloomConfig", {}, 1024),  # ALiBi
}


def write_family(folder: Path, name: str) -> Path:
    """Write a tiny model of a family with random weights, and a tokenizer that pads on the left with no token."""
    import transformers

    tokenizer = write_tokenizer(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": "left"}))
    kind, changes, _ = FAMILIES[name]
    torch.manual_seed(0)
    of_kind, settings = getattr(transformers, kind), _LLAMA | changes | {"bos_token_id": 0, "eos_token_id": 0}
    taken = {each.name for each in dataclasses.fields(of_kind)} | of_kind.attribute_map.keys()
    config = of_kind(**{name: value for name, value in settings.items() if name in taken})
    if name == "qwen2":
        config.head_dim = 4
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def theirs(folder: Path, problem: Any) -> float:
    """Return the mean loss of the test samples, computed by transformers' own model, one sequence at a time."""
    from transformers import AutoModelForCausalLM

    model, losses = AutoModelForCausalLM.from_pretrained(folder).eval(), []
    for sample in problem.splits["test"]:
        pair = problem.encoder.pairs(sample)[sample.label]
        tokens = torch.tensor([*pair.prompt, *pair.answer])
        with torch.no_grad():
            likely = log_softmax(model(input_ids=tokens[None]).logits[0, :-1], dim=-1)
        losses.append(-float(likely.gather(1, tokens[1:, None])[-len(pair.answer) :].mean()))
    return float(np.mean(losses))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_transformers_own_losses_and_its_own_targets_for_lora(
    tmp_path: Path, texts: Path, name: str
) -> None:
    folder = write_family(tmp_path, name)
    fields: dict[str, Any] = {"model": str(folder), "data": str(texts / "sst2"), "validation": 0, "batch_size": 4}
    full = bind(LanguageModel.model_validate(fields))
    x = full.x0()
    expected = theirs(folder, full)
    assert full.evaluate(x, "test")["loss"] == pytest.approx(expected, rel=1e-5)
    assert full.network.tokenizer.pad_token_id is None and full.network.tokenizer.padding_side == "left"
    full.point[:] = x
    light = bind(LanguageModel.model_validate(fields))
    assert light.evaluate_at(lambda span, out: np.copyto(out, x[span]), "test") == full.evaluate(x, "test")
    layerwise = light.objective(0, 0)
    assert layerwise.loss_at(0, lambda span, out: np.copyto(out, x[span])) == full.objective(0, 0).loss(0)
    lora = bind(LanguageModel.model_validate(fields | {"train": {"kind": "lora"}}))
    assert lora.dimension == FAMILIES[name][2]
    assert lora.evaluate(lora.x0(), "test")["loss"] == pytest.approx(expected, rel=1e-5)
    assert lora.evaluate(lora.x0() + np.float32(1), "test")["loss"] != pytest.approx(expected, rel=1e-3)


def test_a_target_that_a_model_lacks_is_one_sentence_with_those_that_it_has(tmp_path: Path) -> None:
    folder = write_family(tmp_path, "bloom")
    for targets in (["q_proj"], ["dense", "q_proj"]):
        task = LanguageModel.model_validate({"model": str(folder), "train": {"kind": "lora", "targets": targets}})
        has = "dense, dense_4h_to_h, dense_h_to_4h, query_key_value"
        with pytest.raises(DataError, match=f"^task.train.targets: found q_proj; expected names of layers: {has}$"):
            _ = task.dimension


def test_a_model_that_takes_no_prefix_says_so(tmp_path: Path, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its experts compute in float32 and float16 only."""
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    monkeypatch.setitem(FAMILIES, "mixtral", ("MixtralConfig", experts, 1280))
    fields = {"model": str(write_family(tmp_path, "mixtral")), "data": str(texts / "sst2"), "train": {"kind": "prefix"}}
    with pytest.raises(
        DataError, match=r"task.train.kind: found prefix, which Mixtral\w+ does not take \(.+\); expected"
    ):
        bind(LanguageModel.model_validate(fields)).x0()
