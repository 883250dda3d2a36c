"""What a study may ask an analysis of its runs' last models: numbers by name, each from the facts of one instrument.

No instrument is imported here, so that a study can be checked without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

Name = Literal[
    "kappa",
    "kappa_share",
    "zeta_share",
    "spread_share",
    "divergence",
    "cka",
    "worst_tenth",
    "clients_deviation",
    "test_worst_tenth",
    "test_clients_deviation",
    "break_even",
]
Facts = Mapping[str, Any]


class Quantity(NamedTuple):
    """A number.

    Attributes:
        instrument: that measures it.
        words: what it is, as the head of a column.
        of: the instrument's facts of a model → the number; KeyError or None: there is none.
        is_served: whether it is a value of `served_metric`, and has its unit.
    """

    instrument: str
    words: str
    of: Callable[[Facts], float | None]
    is_served: bool = False


def _served(words: str, samples: str, fact: str) -> Quantity:
    return Quantity("fairness", words, lambda facts: facts[samples][fact], is_served=True)


QUANTITIES: Mapping[Name, Quantity] = {
    "kappa": Quantity("spectrum", "effective rank κ", lambda facts: facts["effective_rank"]["value"]),
    "kappa_share": Quantity("spectrum", "κ ÷ d", lambda facts: facts["effective_rank"]["value"] / facts["dimension"]),
    "zeta_share": Quantity(
        "whitening",
        "ζ at equal lengths ÷ Lκ",
        lambda facts: facts["zeta_at_equal_lengths"]["value"] / facts["Lkappa"]["value"],
    ),
    "spread_share": Quantity(
        "hessian", "spread of H ÷ without a signal", lambda facts: facts["spread"] / facts["null"]["spread"]["mean"]
    ),
    "divergence": Quantity("divergence", "divergence of clients", lambda facts: facts["divergence"]),
    "cka": Quantity("divergence", "CKA, mean over blocks", lambda facts: sum(facts["cka"]) / len(facts["cka"])),
    "worst_tenth": _served("worst tenth of clients", "own", "worst_tenth"),
    "clients_deviation": _served("deviation between clients", "own", "deviation"),
    "test_worst_tenth": _served("worst tenth of clients on test", "test", "worst_tenth"),
    "test_clients_deviation": _served("deviation between clients on test", "test", "deviation"),
    "break_even": Quantity("break-even", "lag of break-even", lambda facts: facts["break_even_lag"]),
}
"""name → the quantity."""


def served_metric(task: Any, asked: str | None = None) -> str:
    """Return the metric of a `Task` by which it is told how well clients are served.

    Args:
        task: the task.
        asked: the metric that is wanted; of one that the task has not, such as a diagnostic of the algorithm, clients
            have no value.

    Returns:
        That metric, or the first of the task's beside its loss; the loss where it has no other.
    """
    if asked in task.metrics:
        return str(asked)
    return next((name for name in task.metrics if name != "loss"), "loss")


def parts(names: Iterable[Name], metric: str) -> list[str]:
    """Return what measures the named quantities, each once: see `part`."""
    return list(dict.fromkeys(part(name, metric) for name in names))


def part(name: Name, metric: str) -> str:
    """Return the instrument of a quantity, as INSTRUMENT:METRIC if it depends on a study's metric."""
    quantity = QUANTITIES[name]
    return f"{quantity.instrument}:{metric}" if quantity.is_served else quantity.instrument


def quantities(instrument: str, facts: Facts) -> dict[str, float | None]:
    """Return the quantities of an instrument.

    Args:
        instrument: its name.
        facts: of its finding; of several models the last one counts.
    """
    model = facts | facts["rounds"][-1] if "rounds" in facts else facts
    return {name: _number(each, model) for name, each in QUANTITIES.items() if each.instrument == instrument}


def _number(quantity: Quantity, facts: Facts) -> float | None:
    try:
        found = quantity.of(facts)
    except (KeyError, ZeroDivisionError):  # it does not exist in this run, such as ζ without an H
        return None
    return float(found) if found is not None and math.isfinite(found) else None
