"""Batches draw what a fresh generator draws, in whatever order they are asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbus.models.data.batches import batch, batch_of_pass, batches_per_pass
from seedbus.models.generators import brief, generator

Draw = tuple[int, int, int]  # client, round, step
DRAWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=12)


def fresh(draw: Draw, is_pass: bool, size: int = 3) -> list[int]:
    client, round, step = draw
    samples = np.arange(10 * client, 10 * client + 7)
    if not is_pass:
        return list(generator("batch", 5, client, round, step).choice(samples, size, replace=False))
    number, place = divmod(step, batches_per_pass(samples, size))
    order = generator("pass", 5, client, round, number).permutation(7)
    return list(samples[order[place * size : (place + 1) * size]])


@pytest.mark.parametrize("is_pass", [False, True])
@given(draws=DRAWS)
def test_a_batch_depends_on_no_other(is_pass: bool, draws: list[Draw]) -> None:
    ask = batch_of_pass if is_pass else batch
    for draw in draws:
        client, round, step = draw
        samples = np.arange(10 * client, 10 * client + 7)
        found = ask(samples, 3, seed=5, client=client, round=round, step=step)
        assert list(found) == fresh(draw, is_pass), draw


def test_a_brief_generator_begins_anew_and_each_thread_has_its_own() -> None:
    """Half a draw is left over by `integers` of 32 bits; nothing of it may be in the next one's."""
    expected = [generator("a", number).integers(0, 9, 5, dtype=np.uint32).tolist() for number in range(40)]

    def drawn(number: int) -> list[int]:
        brief("b", number).integers(0, 9, 3, dtype=np.uint32)
        return brief("a", number).integers(0, 9, 5, dtype=np.uint32).tolist()  # type: ignore[no-any-return]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(drawn, range(40))) == [drawn(number) for number in range(40)] == expected
