"""A foreign model's folder: what it asks for beside describing a model is refused by its name, before anything acts."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import small_language
from small_hub import MODELS, write_hub_model
from small_language import write

from seedbus.models import DataError
from seedbus.models.text.foreign import _class_of, check_foreign
from seedbus.models.text.language_network import load

CAUSAL = "AutoModelForCausalLM"
KERNEL = "kernels-community/flash-attn2"
CONFIG, TOKENIZER, GENERATION = "config.json", "tokenizer_config.json", "generation_config.json"
ATTENTION = {"_attn_implementation": KERNEL}
INDEX = {"metadata": {}, "weight_map": {"model.decoder.embed_tokens.weight": "../other/model.safetensors"}}
PUBLISHED: list[dict[str, Any]] = json.loads(
    (Path(small_language.__file__).with_name("data") / "published-configs.json").read_text(encoding="utf-8")
)
"""As their authors wrote them with older versions."""


@pytest.fixture
def folder(opt: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(opt, tmp_path / "model"))


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        (CONFIG, {"_attn_implementation": KERNEL}, f"_attn_implementation '{KERNEL}', which OPTConfig does not take"),
        (CONFIG, {"attn_implementation": KERNEL}, "attn_implementation"),
        (CONFIG, {"_attn_implementation_internal": KERNEL}, "_attn_implementation_internal"),
        (CONFIG, {"_attn_implementation": "flash_attention_2"}, "_attn_implementation"),  # which may be a kernel's name
        (CONFIG, {"experts_implementation": "sonicmoe"}, "experts_implementation"),
        (CONFIG, {"_experts_implementation": "deepgemm"}, "_experts_implementation"),
        (CONFIG, {"quantization_config": {"quant_method": "mxfp4"}}, "quantization_config"),
        (CONFIG, {"transformers_weights": "other.safetensors"}, "transformers_weights"),
        (CONFIG, {"kernel_config": {"RMSNorm": f"{KERNEL}:RMSNorm"}}, "kernel_config"),
        (CONFIG, {"use_kernels": True}, "use_kernels"),
        (CONFIG, {"base_model_tp_plan": {"layers": "colwise"}}, "base_model_tp_plan"),
        (CONFIG, {"nobody_knows_this": 1}, "nobody_knows_this 1, which OPTConfig does not take"),
        (CONFIG, {"activation_function": KERNEL}, "activation_function '.*', the name of a place"),
        (CONFIG, {"activation_function": ["relu", {"a": "../b"}]}, "activation_function"),
        (CONFIG, {"dtype": "load"}, "dtype 'load', no type of auto, bfloat16"),
        (CONFIG, {"torch_dtype": "torch.hub"}, "torch_dtype"),
        (CONFIG, {"problem_type": {"checkpoint_path": "x.pt"}}, r"problem_type\.checkpoint_path"),
        (CONFIG, {"model_type": "llava", "text_config": {"model_type": "opt"} | ATTENTION}, r"text_config\._attn"),
        (CONFIG, {"model_type": "llava", "text_config": {"model_type": "opt", "unknown": 1}}, r"text_config\.unk"),
        (CONFIG, {"model_type": "llava", "vision_config": ATTENTION}, r"vision_config\._attn"),
        (CONFIG, {"model_type": "upernet", "backbone": "microsoft/resnet-50"}, "backbone"),
        (GENERATION, {"custom_generate": "somebody/code"}, "custom_generate"),
        (GENERATION, {"nobody_knows_this": 1}, "nobody_knows_this"),
        (GENERATION, {"cache_implementation": "some/body"}, "cache_implementation"),
        (TOKENIZER, {"tokenizer_class": "some/Body"}, "tokenizer_class"),
        (TOKENIZER, {"vocab_file": "/etc/passwd"}, "vocab_file"),
        (TOKENIZER, {"fast_tokenizer_files": ["../tokenizer.9.json"]}, "fast_tokenizer_files"),
        ("preprocessor_config.json", {"image_processor_type": "a/b"}, "image_processor_type"),
        ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "own.P"}}, "auto_map|code of its own"),
        ("processor_config.json", {"auto_map": {"AutoProcessor": "own.P"}}, "auto_map|code of its own"),
        ("adapter_config.json", {"base_model_name_or_path": "some/model"}, "an adapter, which has another model"),
        ("model.safetensors.index.json", INDEX, "a weight_map that names other things than files beside it"),
    ],
)  # fmt: skip
def test_what_a_folder_asks_for_beside_its_model_is_refused_by_its_name(
    folder: Path, name: str, change: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acts(*_: Any, **__: Any) -> None:
        raise AssertionError("transformers was asked to load it")

    for kind in (CAUSAL, "AutoTokenizer"):
        monkeypatch.setattr(f"transformers.{kind}.from_pretrained", acts)
    file = folder / name
    is_new = not file.exists() or "model_type" in change
    write(file, json.dumps(({} if is_new else json.loads(file.read_text())) | change))
    with pytest.raises(DataError, match=rf"{name}: found .*({found}).*; expected ") as raised:
        load(str(folder), "float32", CAUSAL)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model"])
def test_a_tokenizer_of_two_gigabytes_is_refused_with_its_folder(folder: Path, name: str) -> None:
    (folder / name).touch()
    os.truncate(folder / name, 2**31)  # zeros, which take no place on the disk
    with pytest.raises(DataError, match=rf"{name}: found .*2,147,483,648 bytes"):
        check_foreign(str(folder), CAUSAL)


def test_an_honest_file_beside_the_model_says_what_it_likes_in_texts_for_people(folder: Path) -> None:
    tokens = json.loads((folder / TOKENIZER).read_text())
    more = {"chat_template": "{{ messages }} </s>", "name_or_path": "a/b", "special_tokens_map_file": "/root/.cache/x"}
    write(folder / TOKENIZER, json.dumps(tokens | more))
    config = json.loads((folder / CONFIG).read_text())
    labels = {"id2label": {"0": "and/or", "1": "../x"}, "label2id": {"and/or": 0, "../x": 1}}
    write(folder / CONFIG, json.dumps(config | labels | {"_name_or_path": "/home/me/opt", "prefix": "</s>"}))
    model, _ = load(str(folder), "float32", CAUSAL)
    assert model.config.id2label == {0: "and/or", 1: "../x"}


@pytest.mark.parametrize("config", PUBLISHED, ids=lambda config: config["model_type"])
def test_a_configuration_that_an_older_version_wrote_is_accepted(tmp_path: Path, config: dict[str, Any]) -> None:
    pytest.importorskip("transformers", reason="foreign models need transformers")
    write(tmp_path / CONFIG, json.dumps(config))
    check_foreign(str(tmp_path), CAUSAL)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_folder_that_this_version_wrote_loads(tmp_path: Path, name: str) -> None:
    folder, head = write_hub_model(tmp_path, name), MODELS[name][0]
    kinds = {"image-classification": "ImageClassification", "sequence-classification": "SequenceClassification"}
    if head == "causal-lm":
        model, _ = load(str(folder), "float32", CAUSAL)
    else:
        processor = "AutoImageProcessor" if "image" in head else "AutoTokenizer"
        options = {"backend": "pil"} if "image" in head else {}
        model, _ = load(str(folder), "float32", f"AutoModelFor{kinds[head]}", (processor, options))
    assert model.num_parameters()


@pytest.mark.slow
def test_every_configuration_that_this_version_writes_for_a_task_is_accepted(tmp_path: Path) -> None:
    auto = pytest.importorskip("transformers.models.auto.modeling_auto", reason="foreign models need transformers")
    heads = ("CAUSAL_LM", "SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION")
    names = {name for head in heads for name in getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES")}
    written = 0
    for name in sorted(names):
        kind: Any = _class_of(name)
        try:
            config = kind()
        except Exception:  # a class without defaults
            continue
        config.save_pretrained(tmp_path / name)
        check_foreign(str(tmp_path / name), CAUSAL)
        written += 1
    assert written > 200
