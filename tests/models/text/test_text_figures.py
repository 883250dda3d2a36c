"""What the text tasks' figures and samples are, from independent computations: answers, LoRA's sum, draws by key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_language import bind

from seedbus.models import DataError
from seedbus.models.generators import generator
from seedbus.models.text.answers import f1, normalised
from seedbus.models.text.prompts import PROMPTS
from seedbus.models.text.tokens import chunks, collate

pytestmark = pytest.mark.usefixtures("one_thread")


def test_squads_figures_are_means_over_the_evaluated_samples_of_their_generated_answers(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model says the same to every sample: a line with a space before it, a second line, and the end of text."""
    problem = bind(make("squad", validation=0, evaluated=3, answer_tokens=9))
    words, samples = problem.network.tokenizer, problem.splits["test"]
    chosen = [samples[index] for index in problem.task.evaluated_indices(len(samples))]
    asked: list[list[int]] = []

    def said(prompt: list[int], length: int, ends: list[int]) -> list[int]:
        asked.append(prompt)
        assert length == 9 and [words.decode([end]) for end in ends] == ["\n", "</s>"]
        return [*words(" A journey\nof wit", add_special_tokens=False)["input_ids"], words.eos_token_id]

    monkeypatch.setattr(problem.network, "generate", said)
    metrics = problem.evaluate(problem.x0(), "test")
    assert [words.decode(prompt) for prompt in asked] == ["</s>" + PROMPTS["squad"].show(s.fields) for s in chosen]
    are_right = ["a journey" in sample.answers for sample in chosen]
    assert 0 < sum(are_right) < 3 and metrics["accuracy"] == metrics["f1"] == np.mean(are_right)
    assert set(metrics) == set(problem.task.metrics)


def test_words_of_an_answer_count_as_often_as_both_have_them_and_articles_not_at_all() -> None:
    assert normalised("An apple, a pear and the man's another") == "apple pear and mans another"
    assert normalised("the\tthe a wit") == "wit"
    assert f1("wit wit film", ["wit wit"]) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))


def test_a_question_begins_with_a_capital_and_keeps_its_others_and_a_sentence_loses_the_spaces_around_it() -> None:
    shown = PROMPTS["boolq"].show({"passage": "News.", "question": "is the BBC in London"})
    assert shown == "News. Is the BBC in London?"
    assert PROMPTS["sst2"].show({"sentence": "  no wit \n"}) == "no wit It was"


def test_a_group_is_filled_to_the_last_token_and_equal_lengths_keep_their_order() -> None:
    assert chunks([4, 2, 4, 4], 8) == [[1, 0], [2, 3]]


@pytest.mark.parametrize(("fraction", "count"), [(0.07, 2), (0.1, 2), (0.15, 4), (0.5, 12)])
def test_the_validation_split_has_the_nearest_number_of_samples_to_its_fraction(
    make: Any, fraction: float, count: int
) -> None:
    splits, divisible = make(validation=fraction).load(1)
    assert len(splits["validation"]) == count and len(splits["train"]) == 24 - count
    # 24 rows are six sentences, four times: both splits keep the order of the file, and a row is the file's
    train, _ = make(validation=0).load(1)
    kept = [train["train"][row] for row in np.flatnonzero(divisible.rows >= 0)]
    assert splits["train"] == kept and divisible.rows.max() == len(kept) - 1
    assert [splits["train"][place] for place in divisible.rows[divisible.rows >= 0]] == kept


def test_evaluated_samples_are_from_the_whole_split_ascending_and_drawn_for_each_data_set(make: Any) -> None:
    """The published sets are not shuffled: their first samples are not like the others."""
    drawn = [make(name, evaluated=40).evaluated_indices(400) for name in ("sst2", "cb")]
    for indices in drawn:
        assert (np.diff(indices) > 0).all() and indices.size == 40 and indices.min() < 100 < 300 < indices.max()
    assert not np.array_equal(*drawn)


def test_a_batch_is_another_one_for_each_seed_client_round_and_step(make: Any) -> None:
    problems = {seed: bind(make(batch_size=6, validation=0), seed=seed) for seed in (1, 2)}

    def tokens(seed: int, client: int, round: int, step: int) -> tuple[int, ...]:
        problems[seed].parts = [np.arange(24)] * 2  # both have the same samples
        ((_, (batch, _)),) = problems[seed].objective(client, round).parts(step)
        return tuple(batch.ids.flatten().tolist())

    first = tokens(1, 0, 0, 0)
    assert first == tokens(1, 0, 0, 0)
    assert len({first, tokens(2, 0, 0, 0), tokens(1, 1, 0, 0), tokens(1, 0, 1, 0), tokens(1, 0, 0, 1)}) == 5
    assert problems[1].objective(0, 0).key != problems[2].objective(0, 0).key


def test_lora_is_the_full_model_with_alpha_over_rank_times_b_a_added_to_its_layers(make: Any) -> None:
    full, lora = bind(make()), bind(make(train={"kind": "lora", "rank": 3, "alpha": 12, "targets": ["fc1", "q_proj"]}))
    x = np.random.Generator(np.random.Philox(1)).normal(scale=0.2, size=lora.dimension).astype(np.float32)
    added = {name.removeprefix("base_model.model."): torch.from_numpy(t) for name, t in lora.state_dict(x).items()}
    whole = full.network._model.state_dict()
    for name in [name for name in added if ".lora_A." in name]:
        layer = name.replace(".lora_A.", ".")
        whole[layer] = whole[layer] + 12 / 3 * added[name.replace("lora_A", "lora_B")] @ added[name]
    merged = np.concatenate([whole[name].flatten().numpy() for name, _ in full.trained._named])
    assert lora.evaluate(x, "test")["loss"] == pytest.approx(full.evaluate(merged, "test")["loss"], rel=1e-4)


def test_every_a_of_lora_is_drawn_within_peft_s_bounds_and_apart_from_those_of_other_layers_and_seeds(
    make: Any,
) -> None:
    task = make(train={"kind": "lora", "rank": 3})
    drawn = []
    for seed in (1, 2):
        problem = bind(task, seed=seed)
        drawn += [each for name, each in problem.state_dict(problem.x0()).items() if ".lora_A." in name]
    bound = 1 / np.sqrt(16)
    assert all(bound / 2 < np.abs(each).max() <= bound for each in drawn)
    assert len({each.tobytes() for each in drawn}) == 2 * 4


def test_a_header_that_counts_other_weights_than_the_network_has_is_refused(make: Any) -> None:
    problem = bind(make())
    for other in (problem.dimension - 1, problem.dimension + 1):
        with pytest.raises(
            DataError, match=rf"task\.model: found {problem.dimension} trained weights; expected {other}"
        ):
            problem.set_trained(problem.trained, other)


def test_gradients_of_the_validation_split_are_at_x0_and_of_its_samples_in_parts(make: Any) -> None:
    problem = bind(make(validation=0.25, batch_size=4, micro_batch=2))
    problem.point[:] = 0
    found = [gradient.copy() for gradient in problem.held_out_gradients()]
    assert len(found) == 3
    problem.splits["train"] = problem.splits["validation"]
    problem._encoded.clear()
    problem.parts = [np.arange(place, place + 2) for place in (0, 2, 4)]
    problem.point[:] = problem.x0()
    for client, gradient in enumerate(found):
        assert np.array_equal(problem.objective(client, 0).gradient(0), gradient)


@pytest.mark.parametrize(("size", "field", "fewer"), [(4, "batch_size", "2"), (1, "max_length", "")])
def test_half_of_the_samples_are_suggested_where_memory_runs_out_however_many_sequences_they_are(
    make: Any, monkeypatch: pytest.MonkeyPatch, size: int, field: str, fewer: str
) -> None:
    """With `options` each answer of several tokens is a sequence of its own, and one sample cannot be halved."""
    monkeypatch.setitem(PROMPTS, "sst2", PROMPTS["sst2"]._replace(answers=("terrible film", "great journey")))

    def full(*_: Any) -> Any:
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
        )

    problem = bind(make(loss="options", batch_size=size, validation=0))
    monkeypatch.setattr(problem.network, "logits", full)
    named = f"task.micro_batch or task.batch_size: {fewer}, or " if fewer else ""
    with pytest.raises(
        DataError, match=rf"^task\.{field}: found no memory for {2 * size} .*; expected {named}a task\.max"
    ):
        problem.objective(0, 0).loss(0)


def test_a_split_without_samples_is_one_sentence(make: Any) -> None:
    problem = bind(make(validation=0))
    with pytest.raises(DataError, match="no samples in the validation split; expected a larger `validation`"):
        problem.evaluate(problem.x0(), "validation")


def test_a_prefix_begins_as_what_random_words_before_every_text_would_be(make: Any) -> None:
    """Keys and values of the words stand where the words would, up to the 8 bits that they are rounded to."""
    full, prefix = bind(make(validation=0)), bind(make(train={"kind": "prefix", "tokens": 3}, validation=0))
    words = generator("prefix", "language-model", 1).integers(0, full.network._model.config.vocab_size, 3).tolist()
    pairs = [full.encoder.pairs(sample)[sample.label] for sample in full.splits["test"]]
    with torch.inference_mode():
        scores = full.scores(collate([pair._replace(prompt=words + pair.prompt) for pair in pairs]))
    x = prefix.x0()
    assert prefix.evaluate(x, "test")["loss"] == pytest.approx(-float(scores.mean()), rel=0.01)
    assert np.array_equal(torch.from_numpy(x).bfloat16().float().numpy(), x)
    assert not np.array_equal(bind(make(train={"kind": "prefix", "tokens": 3}), seed=2).x0(), x)


def test_losses_in_16_bits_count_as_equal_from_farther_off(make: Any) -> None:
    fine, coarse = (bind(make(compute_dtype=dtype)).objective(0, 0) for dtype in ("float32", "bfloat16"))
    for objective in (fine, coarse):
        objective.compare([5.0, 5.001])
    assert (fine.equal, coarse.equal) == (0, 1)
