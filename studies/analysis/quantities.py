"""What a study may ask an analysis of its runs' last models: numbers by name, each from the facts of one instrument.

No instrument is imported here, so that a study can be checked without torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, WithJsonSchema

Plain = Literal[
    "kappa",
    "kappa_share",
    "zeta_share",
    "spread_share",
    "divergence",
    "cka",
    "clients_mean",
    "worst_tenth",
    "clients_deviation",
    "test_clients_mean",
    "test_worst_tenth",
    "test_clients_deviation",
    "break_even",
]
_OF_GROUP = r"^(test_)?(group|others|gap):."


def _of_group(name: str) -> str:
    if not re.match(_OF_GROUP, name):
        raise ValueError("expected group:NAME, others:NAME or gap:NAME of a group of clients, or test_ and these")
    return name


Name = Plain | Annotated[str, AfterValidator(_of_group), WithJsonSchema({"type": "string", "pattern": _OF_GROUP})]
"""The name of a quantity; of one of a group of clients as "test_group:slow"."""
Facts = Mapping[str, Any]


class Quantity(NamedTuple):
    """A number.

    Attributes:
        instrument: that measures it.
        words: what it is, as the head of a column.
        of: the instrument's facts of a model → the number; KeyError or None: there is none.
        is_served: whether it has the unit of `served_metric`.
        is_value: whether it is a value of that metric, of which more is better or worse; not a deviation or a gap.
        samples: the instrument's facts → on how many samples it is measured, of a quantity of a group.
    """

    instrument: str
    words: str
    of: Callable[[Facts], float | None]
    is_served: bool = False
    is_value: bool = False
    samples: Callable[[Facts], int] | None = None


def _served(words: str, samples: str, fact: str) -> Quantity:
    return Quantity("fairness", words, lambda facts: facts[samples][fact], is_served=True, is_value=fact != "deviation")


QUANTITIES: Mapping[str, Quantity] = {
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
    "clients_mean": _served("mean of clients", "own", "mean"),
    "worst_tenth": _served("worst tenth of clients", "own", "worst_tenth"),
    "clients_deviation": _served("deviation between clients", "own", "deviation"),
    "test_clients_mean": _served("mean of clients on test", "test", "mean"),
    "test_worst_tenth": _served("worst tenth of clients on test", "test", "worst_tenth"),
    "test_clients_deviation": _served("deviation between clients on test", "test", "deviation"),
    "break_even": Quantity("break-even", "lag of break-even", lambda facts: facts["break_even_lag"]),
}
"""name → the quantity, but for those of groups."""
_MEANS: Mapping[str, tuple[str, Callable[[Facts], float], Callable[[Facts], int]]] = {
    "group": ("mean of {}", lambda group: group["mean"], lambda group: group["samples"]),
    "others": (
        "mean of all but {}",
        lambda group: group["others"]["mean"],
        lambda group: group["others"]["samples"],
    ),
    "gap": (
        "mean of all but {0} − mean of {0}",
        lambda group: group["others"]["mean"] - group["mean"],
        lambda group: min(group["samples"], group["others"]["samples"]),
    ),
}
"""Beginning of a name → words, the mean from the facts of a group, and on how many samples that is measured.

Of a gap it is the smaller number, whose mean is the coarser one.
"""
_SAMPLES = {"": ("own", ""), "test_": ("test", " on test")}


def group_in(name: str) -> str:
    """Return the group of clients that a quantity is of; "" for one that is of no group."""
    return name.partition(":")[2]


def quantity(name: str) -> Quantity:
    """Return a quantity by its name, which is a valid one."""
    if name in QUANTITIES:
        return QUANTITIES[name]
    of, _, group = name.partition(":")
    samples, where = _SAMPLES["test_" if of.startswith("test_") else ""]
    words, mean, count = _MEANS[of.removeprefix("test_")]

    def in_group(value: Callable[[Facts], Any]) -> Callable[[Facts], Any]:
        return lambda facts: value(facts[samples]["groups"][group])

    named, is_value = words.format(group) + where, not is_gap(name)
    return Quantity("fairness", named, in_group(mean), is_served=True, is_value=is_value, samples=in_group(count))


def is_gap(name: str) -> bool:
    """Whether a figure is a difference between two groups of clients."""
    return bool(group_in(name)) and name.partition(":")[0].removeprefix("test_") == "gap"


def samples_of(name: str) -> str:
    """Return under which name the number of samples of a group's quantity is kept beside it."""
    return f"samples of {name}"


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
    found = quantity(name)
    return f"{found.instrument}:{metric}" if found.is_served else found.instrument


def quantities(instrument: str, facts: Facts) -> dict[str, float | None]:
    """Return the quantities of an instrument.

    Args:
        instrument: its name.
        facts: of its finding; of several models the last one counts.
    """
    model = facts | facts["rounds"][-1] if "rounds" in facts else facts
    of_groups = [f"{on}{of}:{group}" for group in model.get("groups", ()) for on in _SAMPLES for of in _MEANS]
    found: dict[str, float | None] = {}
    for name in (*QUANTITIES, *of_groups):
        if (each := quantity(name)).instrument == instrument:
            found[name] = _number(each.of, model)
            if each.samples is not None:
                found[samples_of(name)] = _number(each.samples, model)
    return found


def _number(of: Callable[[Facts], float | None], facts: Facts) -> float | None:
    try:
        found = of(facts)
    except (KeyError, ZeroDivisionError):  # it does not exist in this run, such as ζ without an H
        return None
    return float(found) if found is not None and math.isfinite(found) else None
