"""What every robust rule promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from seedbus.models.generators import generator
from seedbus.studies.check.codec import fedavg_with
from seedbus.studies.check.promises import bits, brief, require, require_same

Matrix = NDArray[np.float64]
_LIES = (-1e12, 1e12, 50.0, -50.0)


def matrices() -> Iterator[Matrix]:
    """Yield thirty matrices [clients, values] of 1 to 9 clients, the size of their numbers far apart."""
    for number in range(30):
        draw = generator("conformance", "rule", number)
        rows = draw.normal(size=(int(draw.integers(1, 10)), int(draw.integers(1, 5))))
        yield (rows * 2.0 ** draw.integers(-20, 21)).astype(np.float32).astype(np.float64)


def both(rule: Any, rows: Matrix, state: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (method, combined row, new state) for gradient scalars and for model updates."""
    yield "combine", *rule.combine(rows, state)
    yield "blend", *rule.blend([row.astype(np.float32) for row in rows], state)


def results(rule: Any) -> Any:
    """Return what another process has to find, too."""
    return [list(both(rule, rows, None)) for rows in matrices()]


def what_is_combined_is_a_finite_float64_row_and_the_rows_are_untouched(rule: Any) -> None:
    """From finite rows comes one finite float64 row; the rows and the state that were given are untouched."""
    state: dict[str, Any] = {"combine": None, "blend": None}
    for rows in matrices():
        before = rows.copy()
        for method in state:
            given = state[method]
            was = bits(given)
            found, state[method] = {name: rest for name, *rest in both(rule, rows, given)}[method]
            is_row = isinstance(found, np.ndarray) and (found.dtype, found.shape) == (np.float64, rows[0].shape)
            require(is_row and np.isfinite(found).all(), f"{method} of {brief(rows)} is {brief(found)}")
            require(bits(given) == was, f"{method} changed the state that it was given to {given!r:.80}")
            restored = msgpack.unpackb(msgpack.packb(state[method]))
            require(restored == state[method], f"{method}'s state {state[method]!r:.80} is no plain data")
        require_same(rows, before, "afterwards the rows", "and before")


def rows_and_state_alone_decide(rule: Any) -> None:
    """Rows and state alone decide: not earlier calls, nor how the rows lie in memory."""
    everything = list(matrices())
    first = [list(both(rule, rows, None)) for rows in everything]
    again = [list(both(rule, np.asfortranarray(rows), None)) for rows in reversed(everything)][::-1]
    for rows, one, other in zip(everything, first, again, strict=True):
        require_same(other, one, f"of {brief(rows)}, asked again, it", "and before")


def f_byzantine_clients_do_not_move_it_beyond_honest_values(rule: Any) -> None:
    """A rule whose field `f` is a number keeps within the honest clients' values, whatever f clients send."""
    f = getattr(rule, "f", None)
    if f:
        keeps_out(rule, f)


def keeps_out(rule: Any, f: int) -> None:
    """Raise AssertionError if f of 2f + 7 clients move a rule beyond the honest clients' values."""
    clients = max(2 * f + 7, rule.fewest_reports)
    for lie in _LIES:
        rows = crowd(clients - f, f, lie)
        honest = rows[~(rows == lie).all(axis=1)]
        low, high = honest.min(axis=0) - 1e-6, honest.max(axis=0) + 1e-6
        for method, found, _ in both(rule, rows, None):
            inside = (low <= found).all() and (found <= high).all()
            values = f"honest values from {low.min():.4g} to {high.max():.4g}"
            require(inside, f"with {f} of {clients} clients that send {lie:g}, {method} is {brief(found)}; {values}")


def crowd(honest: int, liars: int, lie: float, values: int = 6) -> Matrix:
    """Return honest rows around 1, …, `values` with a standard deviation of 0.1, and rows of `lie` among them."""
    rows = generator("conformance", "crowd").normal(np.arange(1, values + 1), 0.1, (honest + liars, values))
    rows[:: (honest + liars) // liars][:liars] = lie
    return rows


def too_few_rows_still_have_a_result(rule: Any) -> None:
    """With fewer rows than `fewest_reports` there is a result nevertheless, and `fewest_reports` is at least 1."""
    require(rule.fewest_reports >= 1, f"fewest_reports is {rule.fewest_reports}")
    for clients in range(1, rule.fewest_reports):
        for method, found, _ in both(rule, np.arange(3.0 * clients).reshape(clients, 3), None):
            require(np.isfinite(found).all(), f"{method} of {clients} rows is {brief(found)}")


def fedavg_keeps_its_contract_with_it(rule: Any) -> None:
    """FedAvg with this rule keeps the promises of an algorithm; the order in which reports arrive changes nothing."""
    fedavg_with(aggregation=rule)


CONTRACT: Sequence[Any] = [
    what_is_combined_is_a_finite_float64_row_and_the_rows_are_untouched,
    rows_and_state_alone_decide,
    f_byzantine_clients_do_not_move_it_beyond_honest_values,
    too_few_rows_still_have_a_result,
    fedavg_keeps_its_contract_with_it,
]
