"""For every fault, lines of a scenario that have an effect, lines that have none, and lines that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

Line = dict[str, Any]


class Case(NamedTuple):
    """The lines with which one fault is tested.

    Attributes:
        strikes: name → (line, effect) of lines with an effect in `world`, which the results count under that word.
        idles: lines without intensity, which do not change a byte.
        world: further fields that the scenario needs.
        alters: whether the effect shows in the ledger.
    """

    strikes: dict[str, tuple[Line, str]]
    idles: list[Line]
    world: Line = {}  # noqa: RUF012
    alters: bool = True


PARETO = {"distribution": "pareto", "minimum": 0.2, "shape": 0.8}
SPEEDS = [{"share": 0.5, "factor": 1.0}, {"share": 0.3, "factor": 4.0}, {"share": 0.2, "factor": 0.5}]
ANY_BUT_DIGESTS = ["header", "twice", "body", "noise", "join", "decline", "snapshot", "evaluation"]
DATA = Path(__file__).with_name("data")
SHORT = {"distribution": "exponential", "mean": 0.8}

CASES: dict[str, Case] = {
    "bandwidth": Case(
        {
            "both": ({"up_mbps": 0.002, "down_mbps": 0.01}, "throttled"),
            "some": ({"up_mbps": 0.001, "fraction": 0.5, "for_rounds": 3, "every_rounds": 5}, "throttled"),
        },
        [{"up_mbps": 0.001, "probability": 0.0}, {"down_mbps": 0.001, "clients": []}],
    ),
    "byzantine": Case(
        {
            "sign": ({"attack": "sign-flip", "fraction": 0.5}, "lied"),
            "noise": ({"attack": "noise", "probability": 0.5}, "lied"),
            "replay": ({"attack": "replay", "clients": [1, 3], "at_round": 2}, "lied"),
            "huge": ({"attack": "huge", "fraction": 0.25}, "lied"),
        },
        [{"attack": "nan", "probability": 0.0}, {"attack": "scale", "by": 2.0, "fraction": 0.0}],
        alters=False,
    ),
    "churn": Case(
        {
            "said": ({"stays": SHORT, "away": SHORT}, "away"),
            "unsaid": ({"stays": SHORT, "away": SHORT, "announced": False, "returns": "without-state"}, "back"),
            "some": ({"stays": SHORT, "away": SHORT, "fraction": 0.5, "initially": 0.5}, "back"),
        },
        [{"stays": SHORT, "away": SHORT, "fraction": 0.0}],
    ),
    "colluding": Case(
        {
            "alie": ({"attack": "alie", "fraction": 0.5}, "lied"),
            "ipm": ({"attack": "ipm", "clients": [1, 3], "at_round": 2, "by": 3.0}, "lied"),
            "min-max": ({"attack": "min-max", "probability": 0.5}, "lied"),
            "along": ({"attack": "min-max", "along": "sign", "clients": [0, 2]}, "lied"),
        },
        [{"attack": "ipm", "probability": 0.0}, {"attack": "alie", "clients": []}],
        alters=False,
    ),
    "corrupt": Case(
        {"one": ({"probability": 0.2}, "corrupted"), "many": ({"probability": 0.2, "bits": 9}, "corrupted")},
        [{"probability": 0.0}, {"at_s": 1e6}],
    ),
    "crash": Case(
        {
            "back": ({"fraction": 0.5, "at_round": 2, "for_rounds": 3, "every_rounds": 5}, "back"),
            "bare": ({"probability": 0.3, "for_rounds": 2, "every_rounds": 4, "returns": "without-state"}, "back"),
            "foreign": ({"clients": [0, 1, 5], "for_rounds": 4, "returns": "from-another-run"}, "back"),
            "for-ever": ({"clients": [2, 3], "at_round": 3}, "away"),
        },
        [{"probability": 0.0}, {"at_round": 999}, {"clients": []}],
    ),
    "delay": Case(
        {"jitter": ({"by": PARETO, "probability": 0.4}, "delayed")},
        [{"by": PARETO, "probability": 0.0}, {"by": {"distribution": "constant", "value": 0.0}}],
    ),
    "device-classes": Case(
        {"three": ({"classes": SPEEDS}, "slowed")},
        [{"classes": [{"share": 1.0, "factor": 1.0}]}, {"classes": SPEEDS, "fraction": 0.0}],
    ),
    "device-speeds": Case(
        {
            "clients": ({"file": str(DATA / "speeds.csv")}, "slowed"),
            "devices": ({"file": str(DATA / "speeds-of-devices.csv"), "fraction": 0.5}, "slowed"),
        },
        [{"file": str(DATA / "speeds-of-nobody.csv")}, {"file": str(DATA / "speeds.csv"), "clients": []}],
    ),
    "diurnal": Case(
        {
            "night": ({"period_s": 3.0, "low": 0.2, "high": 0.9}, "back"),
            "zones": ({"period_s": 2.0, "low": 0.0, "zones": 4, "announced": False}, "away"),
        },
        [{"low": 1.0}, {"low": 0.0, "fraction": 0.0}],
    ),
    "drop": Case(
        {
            "any": ({"probability": 0.3}, "dropped"),
            "plans": ({"probability": 0.5, "kind": "plan"}, "dropped"),
            "while": ({"at_s": 1.0, "for_s": 0.5, "every_s": 2.0}, "dropped"),
        },
        [{"probability": 0.0}, {"kind": "join", "direction": "down"}, {"fraction": 0.0}],
    ),
    "dropout": Case(
        {
            "before": ({"probability": 0.3}, "dropped"),
            "after": ({"probability": 0.3, "when": "after-training"}, "silenced"),
            "landing": ({"rates": [0.1, 0.6], "when": "before-landing"}, "dropped"),
            "groups": ({"probability": 0.4, "groups": 3, "when": "after-training"}, "silenced"),
        },
        [{"probability": 0.0}, {"rates": [0.0, 0.0]}, {"at_round": 999, "when": "after-training"}],
    ),
    "duplicate": Case(
        {"one": ({"probability": 0.3}, "duplicated"), "three": ({"probability": 0.2, "copies": 3}, "duplicated")},
        [{"probability": 0.0}, {"direction": "up", "kind": "plan"}],
    ),
    "hostile": Case(
        {
            "any": ({"kinds": ANY_BUT_DIGESTS, "fraction": 0.5}, "forged"),
            "joins": ({"kinds": ["join", "decline"], "clients": [1, 3], "at_round": 2}, "forged"),
            "silence": ({"kinds": ["silence", "noise"], "probability": 0.5}, "forged"),
        },
        [{"probability": 0.0}, {"clients": []}, {"at_round": 999}],
    ),
    "label-flip": Case(
        {
            "reverse": ({"fraction": 0.5}, "mislabelled"),
            "pairs": ({"pairs": [[3, 8], [8, 3]], "clients": [0, 2], "at_round": 2}, "mislabelled"),
            "next": ({"to": "next", "probability": 0.5}, "mislabelled"),
        },
        [{"probability": 0.0}, {"to": "next", "clients": []}],
        world={"task": {"name": "digits", "model": "softmax", "batch_size": 8}},
        alters=False,
    ),
    "late-joiners": Case(
        {"half": ({"fraction": 0.5, "at_round": 3, "spread_rounds": 4}, "back")},
        [{"fraction": 0.0}, {"clients": []}],
    ),
    "link-trace": Case(
        {
            "changes": ({"file": str(DATA / "links.csv")}, "throttled"),
            "again": ({"file": str(DATA / "links.csv"), "every_s": 2.5, "clients": [0, 1, 2, 3]}, "throttled"),
            "devices": ({"file": str(DATA / "links-of-devices.csv"), "fraction": 0.5}, "throttled"),
        },
        [{"file": str(DATA / "links-of-nobody.csv")}, {"file": str(DATA / "links.csv"), "fraction": 0.0}],
    ),
    "partition": Case(
        {
            "rounds": ({"fraction": 0.5, "for_rounds": 4, "every_rounds": 8}, "dropped"),
            "seconds": ({"at_s": 1.2, "for_s": 1.5}, "dropped"),
            "upward": ({"probability": 0.5, "direction": "up", "at_round": 5}, "dropped"),
        },
        [{"probability": 0.0}, {"at_round": 999}, {"clients": []}],
    ),
    "ramp": Case(
        {
            "up": ({"start": 2, "stages": [{"rounds": 8, "target": 8}]}, "back"),
            "down": ({"start": 8, "stages": [{"rounds": 5, "target": 1}, {"rounds": 5, "target": 6}]}, "away"),
        },
        [{"start": 8, "stages": [{"rounds": 4, "target": 8}]}],
    ),
    "reorder": Case(
        {"any": ({"window_s": 0.8, "probability": 0.5}, "delayed")}, [{"window_s": 1.0, "probability": 0.0}]
    ),
    "replacement": Case(
        {"half": ({"active": 4, "every_rounds": 3}, "away")},
        [{"active": 8}, {"active": 3, "clients": []}],
    ),
    "server-crash": Case(
        {
            "asking": ({"at_round": 2, "every_rounds": 5, "phase": "asking", "down_s": 0.3}, "crashed"),
            "gathering": ({"at_round": 3, "down_s": 1.0}, "crashed"),
            "committing": ({"at_round": 3, "phase": "committing"}, "crashed"),
            "publishing": ({"at_round": 0, "every_rounds": 1, "phase": "publishing", "down_s": 0.1}, "crashed"),
        },
        [{"at_round": 999}],
    ),
    "straggler": Case(
        {
            "factor": ({"factor": {"distribution": "lognormal", "median": 3, "sigma": 1}}, "slowed"),
            "once": ({"factor": PARETO, "drawn": "once", "fraction": 0.5}, "slowed"),
            "pause": ({"pause_s": 0.3, "probability": 0.4}, "slowed"),
        },
        [
            {"factor": {"distribution": "constant", "value": 1.0}},
            {"pause_s": 0.0},
            {"pause_s": 9.0, "probability": 0.0},
        ],
    ),
    "trace": Case(
        {
            "clients": ({"file": str(DATA / "availability.csv")}, "back"),
            "devices": ({"file": str(DATA / "availability-of-devices.csv"), "clients": [0, 1, 2, 5]}, "back"),
        },
        [{"file": str(DATA / "availability-of-nobody.csv")}],
    ),
}
"""A fault without a case fails the contract's first test."""


STRIKING = [
    pytest.param(name, {"fault": name} | line, does, id=f"{name}-{special}")
    for name, case in CASES.items()
    for special, (line, does) in case.strikes.items()
]
"""(fault, line, effect) of all lines with an effect, for parametrised tests."""

FIRST = [next(each for each in STRIKING if each.values[0] == name) for name in CASES]
"""The first line with an effect of every fault."""

OTHERS_IN_SOAK = [
    each if each in FIRST else pytest.param(*each.values, id=each.id, marks=pytest.mark.soak) for each in STRIKING
]
"""All of `STRIKING`, of which those that are not in `FIRST` belong to the soak suite."""

IDLING = [
    pytest.param(name, {"fault": name} | line, id=f"{name}-{number}")
    for name, case in CASES.items()
    for number, line in enumerate(case.idles)
]
"""(fault, line) of all lines without an effect."""
