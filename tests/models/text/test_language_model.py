"""Language models: their prompts, and their scores compared with those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_language import bind
from task_contract import keep_contract
from torch.nn.functional import log_softmax

from seedbus.models import DataError
from seedbus.models.text.answers import f1, is_exact, normalised
from seedbus.models.text.files import SETS, read
from seedbus.models.text.prompts import PROMPTS
from seedbus.models.text.tokens import Pair, chunks, collate

WAYS: dict[str, Any] = {
    "full": {},
    "lora": {"train": {"kind": "lora", "rank": 3}},
    "lora-bfloat16": {"train": {"kind": "lora"}, "dtype": "bfloat16"},
    "prefix": {"train": {"kind": "prefix", "tokens": 3}},
    "layernorm": {"train": {"kind": "layernorm"}},
    "last-blocks": {"train": {"kind": "last-blocks"}},
    "layernorm-float16": {"train": {"kind": "layernorm"}, "dtype": "float16"},
    "packed": {"batching": "packed"},
    "options": {"loss": "options", "dataset": "cb"},
}


pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


def hugging_face(folder: Path, pair: Pair) -> float:
    """Return the mean log-likelihood of an answer, computed by transformers' own model, one sequence at a time."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokens = [*pair.prompt, *pair.answer]
    with torch.no_grad():
        likely = log_softmax(model(input_ids=torch.tensor([tokens])).logits[0, :-1], dim=-1)
    picked = likely[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
    return float(picked[-len(pair.answer) :].mean())


@pytest.mark.parametrize("way", ["full", "last-blocks", "lora", "layernorm-float16", "packed"])
def test_a_language_model_keeps_the_contract_of_tasks(make: Any, way: str) -> None:
    keep_contract(make(validation=0.3, **WAYS[way]))


@pytest.mark.parametrize(
    ("fields", "bound"),
    [(fields, 1e-3) for fields in WAYS.values()]
    + [
        ({"micro_batch": 2}, 1e-3),
        ({"train": {"kind": "lora"}, "dtype": "nf4"}, 1e-3),
        ({"compute_dtype": "bfloat16"}, 0.05),
    ],
    ids=str,
)
def test_a_slope_is_the_gradient_along_the_direction(make: Any, fields: dict[str, Any], bound: float) -> None:
    problem = bind(make(**fields))
    problem.check_slopes()
    objective = problem.objective(0, 1)
    objective.point[:] = problem.x0() + np.sin(np.arange(problem.dimension)) / 64
    objective.tangent[:] = np.cos(np.arange(problem.dimension))
    (slope,) = objective.read([objective.slope(0)])
    gradient = np.array(objective.gradient(0), np.float64)
    assert abs(slope - gradient @ objective.tangent) < bound * np.linalg.norm(gradient)


# Prompts and batches


def test_every_data_set_is_read_and_shown_as_mezo_shows_it(texts: Path) -> None:
    shown = {name: PROMPTS[name].show(read(name, str(texts / name))[1][0].fields) for name in SETS}
    assert shown == {
        "sst2": "a charming and often affecting journey It was",
        "rte": 'No wit.\nDoes this mean that "Wit." is true? Yes or No?\n',
        "cb": 'Suppose A film. Can we infer that "It was great"? Yes, No, or Maybe?\n',
        "boolq": "A film of the year. Is it a film?",
        "wsc": 'Bo saw Al, and He sat.\nIn the previous sentence, does the pronoun "he" refer to Al? Yes or No?\n',
        "wic": 'Does the word "wit" have the same meaning in these two sentences? Yes, No?\nNo wit.\nOf wit.\n',
        "multirc": 'A film.\nQuestion: What?\nI found this answer "a film". Is that correct? Yes or No?\n',
        "qqp": "Question 1: a film ?\nQuestion 2: a journey ?\n\nDo these two questions convey the same meaning? "
        "Yes or no?\n",
        "squad": "Title: Film\nContext: The best film of the year was a journey.\nQuestion: Which film?\nAnswer:",
    }


@pytest.mark.parametrize(
    ("name", "answers"),
    {
        "sst2": ["great", "terrible", "great", "terrible", "great", "terrible"],
        "rte": ["No", "Yes"],
        "cb": ["Yes", "No", "Maybe"],
        "boolq": ["Yes", "No"],
        "wic": ["Yes", "No"],
        "wsc": ["No", "Yes"],
        "multirc": ["Yes", "No"],
        "qqp": ["No", "Yes"],
    }.items(),
)
def test_every_class_has_the_answer_that_means_it(texts: Path, name: str, answers: list[str]) -> None:
    assert [PROMPTS[name].answers[sample.label] for sample in read(name, str(texts / name))[1]] == answers


@pytest.mark.parametrize("name", SETS)
def test_only_the_answers_own_tokens_are_scored(make: Any, name: str) -> None:
    problem = bind(make(name, validation=0))
    for sample in problem.splits["test"]:
        prompt, texts = PROMPTS[name].show(sample.fields), PROMPTS[name].answers or (sample.answers[0] + "\n",)
        for pair, text in zip(problem.encoder.pairs(sample), texts, strict=True):
            assert problem.network.tokenizer.decode(pair.answer) == PROMPTS[name].separator + text
            start, *rest = pair.prompt
            assert start == 0 and prompt.endswith(problem.network.tokenizer.decode(rest))


def test_a_long_prompt_loses_its_beginning_and_keeps_its_end(make: Any) -> None:
    unlimited, truncated = bind(make(validation=0)), bind(make(validation=0, max_length=9))
    for sample in unlimited.splits["test"]:
        for long, short in zip(unlimited.encoder.pairs(sample), truncated.encoder.pairs(sample), strict=True):
            assert short.answer == long.answer and short.length == min(9, long.length)
            assert short.prompt == [0, *long.prompt[1:][-(8 - len(long.answer)) :]]
    assert len(truncated.encoder.question(truncated.splits["test"][0], 4)) == 5


def test_pairs_that_differ_in_the_last_token_share_a_row() -> None:
    batch = collate([Pair([5, 6], [7]), Pair([5, 6], [8]), Pair([5], [6, 9, 4])])
    assert batch.ids.tolist() == [[5, 6, 0], [5, 6, 9]]
    assert batch.rows.tolist() == [0, 0, 1, 1, 1] and batch.columns.tolist() == [1, 1, 0, 1, 2]
    assert batch.targets.tolist() == [7, 8, 6, 9, 4] and batch.owners.tolist() == [0, 1, 2, 2, 2]
    assert batch.lengths.tolist() == [1, 1, 3]


def test_groups_hold_every_index_once_and_no_more_tokens_than_allowed() -> None:
    lengths = [int(length) for length in np.random.Generator(np.random.Philox(1)).integers(1, 60, 200)]
    groups = chunks(lengths, 128)
    assert sorted(index for group in groups for index in group) == list(range(200))
    assert all(len(group) * max(lengths[index] for index in group) <= 128 for group in groups)
    assert chunks([500], 128) == [[0]]


# Scores, losses and gradients


@pytest.mark.parametrize("name", ["sst2", "cb", "squad"])
def test_an_evaluation_equals_transformers_own_one_sequence_at_a_time(opt: Path, make: Any, name: str) -> None:
    problem = bind(make(name))
    samples = problem.splits["test"]
    scores = [[hugging_face(opt, pair) for pair in problem.encoder.pairs(sample)] for sample in samples]
    metrics = problem.evaluate(problem.x0(), "test")
    right = [options[sample.label % len(options)] for options, sample in zip(scores, samples, strict=True)]
    assert metrics["loss"] == pytest.approx(-np.mean(right), rel=1e-5)
    if name != "squad":
        guesses = [int(np.argmax(options)) for options in scores]
        assert metrics["accuracy"] == np.mean([a == sample.label for a, sample in zip(guesses, samples, strict=True)])


def test_a_loss_is_the_mean_over_the_batch_and_the_same_alone_or_filled_up(make: Any) -> None:
    problem = bind(make(batch_size=5, validation=0))
    objective = problem.objective(1, 3)
    objective.point[:] = problem.x0()
    ((_, (batch, labels)),) = objective.parts(2)
    alone = []
    for pair in range(len(labels)):
        own = batch.owners == pair
        first = int(batch.columns[own][0])
        prompt = batch.ids[batch.rows[own][0], : first + 1].tolist()
        with torch.inference_mode():
            alone.append(-float(problem.scores(collate([Pair(prompt, batch.targets[own].tolist())]))[0]))
    assert len(labels) == 5 and objective.loss(2) == pytest.approx(np.mean(alone), rel=1e-5)


def test_the_loss_over_options_is_a_cross_entropy_over_scores(make: Any) -> None:
    problem = bind(make("cb", loss="options"), clients=1)
    scores, labels = torch.tensor([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]), torch.tensor([2, 0])
    expected = [np.log(np.exp([0, 1, 2]).sum()) - 2, np.log(3)]
    assert problem.losses(scores, labels).numpy() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_the_gradient_is_the_slope_of_the_loss_in_every_direction_tried(make: Any, way: str) -> None:
    problem = bind(make(validation=0, **WAYS[way]))
    objective = problem.objective(0, 0)
    x = problem.x0()
    objective.point[:] = x
    assert np.isfinite(objective.loss(0)), "of the batch that the gradient is then taken of"
    gradient = objective.gradient(0).copy()
    assert gradient.shape == x.shape and gradient.dtype == np.float32
    along = gradient / np.linalg.norm(gradient)
    losses = []
    for sign in (1, -1):
        objective.point[:] = x + np.float32(sign * 2e-3) * along
        losses.append(objective.loss(0))
    assert (losses[0] - losses[1]) / 4e-3 == pytest.approx(np.linalg.norm(gradient), rel=0.02)
    objective.point[:] = x
    assert objective.gradient(0).tobytes() == gradient.tobytes(), "the buffer begins at zero every time"
    with pytest.raises(DataError, match="a loss of its own"):
        objective.gradient(0, criterion=len)


def test_the_model_learns_first_order_in_a_few_steps(make: Any) -> None:
    problem = bind(make(validation=0), clients=1)
    objective = problem.objective(0, 0)
    x = problem.x0()
    for _ in range(40):
        objective.point[:] = x
        x -= np.float32(0.05) * objective.gradient(0)
    assert problem.evaluate(x, "test") == {"loss": pytest.approx(0, abs=0.3), "accuracy": 1.0}


def test_a_generated_answer_is_the_likeliest_token_after_token(make: Any) -> None:
    problem = bind(make("squad", train={"kind": "prefix"}))
    asked = problem.encoder.question(problem.splits["test"][0], 4)
    found = list(asked)
    for _ in range(4):
        with torch.inference_mode():
            last = torch.tensor([len(found) - 1])
            logits = problem.network.logits(torch.tensor([found]), torch.tensor([0]), last)
        found.append(int(logits.argmax()))
        if found[-1] in problem.encoder.ends:
            break
    assert problem.network.generate(asked, 4, problem.encoder.ends) == found[len(asked) :]


def test_f1_and_exact_match_are_the_official_ones() -> None:
    assert normalised("The  Best, film!") == "best film"
    assert is_exact("a Journey.", ["the journey"]) and not is_exact("journeys", ["journey"])
    assert f1("the best film of 1999", ["best film", "a film"]) == pytest.approx(2 * (2 / 4) * 1 / (2 / 4 + 1))
    assert f1("", ["film"]) == 0 == f1("wit", ["film"]) and f1("film", ["film"]) == 1
