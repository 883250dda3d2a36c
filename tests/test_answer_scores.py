"""The threshold and the area that say how well scores of answers tell classes apart, against trying all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from answer_scores import differences, separation
from hypothesis import given
from hypothesis import strategies as st
from small_language import bind

from seedbus.models.tasks.language_model import LanguageModel

LEVELS = st.sampled_from([-3.0, -0.5, 0.0, 0.25, 1e-9, 7.0])


@given(st.lists(st.tuples(LEVELS, st.integers(0, 1)), min_size=2, max_size=12))
def test_accuracy_best_threshold_and_area_are_those_of_trying_every_one(samples: list[tuple[float, int]]) -> None:
    values, labels = (np.array(column) for column in zip(*samples, strict=True))
    if len(set(labels.tolist())) < 2:
        with pytest.raises(ValueError, match="samples of class 1 and"):
            separation(values, labels)
        return
    found = separation(values, labels)
    tried = [np.mean((values > edge) == labels) for edge in (*values, values.min() - 1)]
    assert found.best == pytest.approx(max(tried))
    assert np.mean((values > found.threshold) == labels) == pytest.approx(found.best)
    assert found.accuracy == np.mean((values > 0) == labels) <= found.best
    pairs = [(one > zero) + (one == zero) / 2 for one in values[labels == 1] for zero in values[labels == 0]]
    assert found.auc == pytest.approx(np.mean(pairs))


def test_a_difference_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no number"):
        separation(np.array([0.0, np.nan]), np.array([0, 1]))


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_differences_of_answers_have_the_accuracy_that_the_task_measures(opt: Path, texts: Path) -> None:
    problem = bind(LanguageModel.model_validate({"model": str(opt), "data": str(texts / "sst2"), "validation": 0}))
    for shift in (0.0, 0.05, -0.1):
        problem.point[:] = problem.x0() + np.float32(shift)
        found = separation(*differences(problem, "test"))
        assert found.accuracy == problem.evaluate(problem.point.copy(), "test")["accuracy"]
        assert found.best >= max(found.accuracy, 0.5)
