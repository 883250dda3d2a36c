"""An exported model of owners' texts is applied to new ones as the evaluator of its run applies it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from owners import own_scenario
from safetensors.torch import load_file, save_file
from small_language import SENTENCES, write, write_model, write_tokenizer

import seedbus
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.replay import Replayed
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.transports.placement import Placement

PROMPT = {"prompt": "{review} It was", "target": "stars", "answers": {"1": "terrible", "5": "great"}}
COLUMNS = {"columns": ["review"], "target": "stars", "classes": ["1", "5"]}
OPTIONS = {"name": "language-model", "loss": "options"}
TASKS: dict[str, dict[str, Any]] = {
    "full": OPTIONS | {"texts": PROMPT},
    "lora": OPTIONS | {"texts": PROMPT, "train": {"kind": "lora", "rank": 2}, "batching": "packed"},
    "last-blocks": OPTIONS | {"texts": PROMPT, "train": {"kind": "last-blocks", "blocks": 1}},
    "head": {"name": "sentence-encoder", "texts": COLUMNS},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of SEEDBUS_DATA with a tiny causal model and a tiny encoder."""
    pytest.importorskip("peft", reason="low-rank additions need peft")
    transformers = pytest.importorskip("transformers", reason="pretrained models need transformers")
    root = tmp_path_factory.mktemp("models")
    write_model(root / "language-model")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    words = len(write_tokenizer(root / "sentence-encoder"))
    torch.manual_seed(0)
    settings = transformers.BertConfig(**sizes, vocab_size=words)
    transformers.BertModel(settings).save_pretrained(root / "sentence-encoder")
    return root


def trained(folder: Path, models: Path, task: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **more: Any) -> Replayed:
    """Return the model of a short run of two owners."""
    monkeypatch.setenv("SEEDBUS_DATA", str(models))
    rows = [{"review": f"{text} {row}", "stars": 5 if label else 1} for row, (text, label) in enumerate(SENTENCES * 3)]
    for owner in (0, 1):
        write(folder / f"{owner}.jsonl", "".join(json.dumps(row) + "\n" for row in rows[owner::2]))
    fields = {"model": str(models / task["name"]), "dataset": "own", "batch_size": 4} | task
    policy = {"participation": {"clients": 2, "cohort": 2}, "stop": {"rounds": 2}}
    what = own_scenario(task=fields, **policy, **more)
    placement = Placement("memory", own=str(folder / "*.jsonl"))
    results = run(load(what), folder / "run", placement=placement, page=False)
    return seedbus.replay(results.folder)


@pytest.mark.parametrize("kind", TASKS)
def test_new_texts_are_given_what_the_run_would_give_them(
    kind: str, tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = {"mask": {"rule": "random", "density": 0.5}} if kind == "full" else {}
    model = trained(tmp_path, models, TASKS[kind], monkeypatch, **mask)
    model.save(tmp_path / "model.safetensors")
    found = seedbus.predict(tmp_path / "model.safetensors", tmp_path / "0.jsonl")
    assert list(found) == ["1", "5"] and len({*found["5"]}) > 1
    here = with_own(load(tmp_path / "run" / "scenario.yaml"), str(tmp_path / "0.jsonl"), [0], evaluates=False)
    one: Any = bind(here)
    problem = getattr(one, "inside", one)
    rows = [json.loads(line) for line in (tmp_path / "0.jsonl").read_text().splitlines()]
    loss = sum(-math.log(found[str(row["stars"])][place]) for place, row in enumerate(rows))
    parts = {split: np.arange(len(problem.splits[split])) for split in ("train", "validation", "test")}
    measured = [(part.size, one.evaluate_part(model.point, split, part)) for split, part in parts.items() if part.size]
    assert sum(size for size, _ in measured) == len(rows)
    assert loss == pytest.approx(sum(size * each["loss"] for size, each in measured), rel=1e-6)
    texts = [row["review"] for row in rows]
    np.testing.assert_array_equal(seedbus.predict(tmp_path / "model.safetensors", texts), found)
    np.testing.assert_array_equal(seedbus.predict(tmp_path / "model.safetensors", rows), found)
    assert seedbus.predict(tmp_path / "model.safetensors", []).shape == (0, 2)


def test_a_file_of_texts_that_does_not_fit_is_refused_with_its_reason(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained(tmp_path, models, TASKS["lora"], monkeypatch)
    path = tmp_path / "model.safetensors"
    model.save(path)
    with pytest.raises(ScenarioError, match="expected the name of a CSV, TSV or JSON lines file"):
        seedbus.predict(path, 5)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="row 2, column review: found an empty cell; expected a text"):
        seedbus.predict(path, ["fine", " "])
    about = model.preprocessing
    assert about is not None and about.settings is not None
    assert about.settings["model"] == "language-model", "no path of this machine"
    tensors = load_file(path)
    for changed, sentence in (
        ({"settings": about.settings | {"model": str(tmp_path)}}, "expected its folder inside SEEDBUS_DATA"),
        ({"settings": about.settings | {"batching": "none"}}, "settings that are not accepted"),
        ({"task": "table"}, "a model of task table; expected a model that"),
        ({"frozen": "00"}, "beside other weights, or another tokenizer"),
        ({"classes": ("1", "3", "5")}, "classes or tensors that are not those of its settings"),
        ({"task": "language-model", "settings": about.settings | {"model": "\x1b[31m"}}, r"began with  \[31m"),
    ):
        save_file(tensors, path, {"preprocessing": about.model_copy(update=changed).text()})
        with pytest.raises(DataError, match=sentence):
            seedbus.predict(path, ["fine"])
    save_file({name: tensor[:1] for name, tensor in tensors.items()}, path, {"preprocessing": about.text()})
    with pytest.raises(DataError, match="classes or tensors that are not those of its settings"):
        seedbus.predict(path, ["fine"])
    other = tmp_path / "other" / "language-model"
    shutil.copytree(models / "language-model", other)
    write_model(other, seed=1)
    save_file(tensors, path, {"preprocessing": about.text()})
    monkeypatch.setenv("SEEDBUS_DATA", str(other.parent))
    with pytest.raises(DataError, match="beside other weights"):
        seedbus.predict(path, ["fine"])
