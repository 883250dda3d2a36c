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
        mistakes: (line, sentence) of lines that are refused with the sentence.
        world: further fields that the scenario needs.
        alters: whether the effect shows in the ledger.
    """

    strikes: dict[str, tuple[Line, str]]
    idles: list[Line]
    mistakes: list[tuple[Line, str]] = []  # noqa: RUF012
    world: Line = {}  # noqa: RUF012
    alters: bool = True


PARETO = {"distribution": "pareto", "minimum": 0.2, "shape": 0.8}
SPEEDS = [{"share": 0.5, "factor": 1.0}, {"share": 0.3, "factor": 4.0}, {"share": 0.2, "factor": 0.5}]

_RETURNS = (
    "faults.0.returns: \"with-style\" is not accepted; expected 'with-state', 'without-state' or 'from-another-run'"
)
_PHASES = "faults.0.phase: \"sleeping\" is not accepted; expected 'asking', 'gathering', 'committing' or 'publishing'"
_KINDS = (
    "'silence', 'header', 'twice', 'body', 'noise', 'digest', 'join', 'decline', 'snapshot', 'evaluation' or 'mask'"
)
_NO_FILE = "faults.0.file: this field is required (the CSV file; a relative path is relative to the scenario's file)"
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
        [({}, "faults.0: give up_mbps or down_mbps, or both")],
    ),
    "byzantine": Case(
        {
            "sign": ({"attack": "sign-flip", "fraction": 0.5}, "lied"),
            "noise": ({"attack": "noise", "probability": 0.5}, "lied"),
            "replay": ({"attack": "replay", "clients": [1, 3], "at_round": 2}, "lied"),
            "huge": ({"attack": "huge", "fraction": 0.25}, "lied"),
        },
        [{"attack": "nan", "probability": 0.0}, {"attack": "scale", "by": 2.0, "fraction": 0.0}],
        [({"attack": "huge", "by": 3.0}, "faults.0: by belongs to attack: scale, and this is huge")],
        alters=False,
    ),
    "churn": Case(
        {
            "said": ({"stays": SHORT, "away": SHORT}, "away"),
            "unsaid": ({"stays": SHORT, "away": SHORT, "announced": False, "returns": "without-state"}, "back"),
            "some": ({"stays": SHORT, "away": SHORT, "fraction": 0.5, "initially": 0.5}, "back"),
        },
        [{"stays": SHORT, "away": SHORT, "fraction": 0.0}],
        [
            (
                {"stays": SHORT},
                "faults.0.away: this field is required (seconds for which a client is away; drawn for each period)",
            )
        ],
    ),
    "colluding": Case(
        {
            "alie": ({"attack": "alie", "fraction": 0.5}, "lied"),
            "ipm": ({"attack": "ipm", "clients": [1, 3], "at_round": 2, "by": 3.0}, "lied"),
            "min-max": ({"attack": "min-max", "probability": 0.5}, "lied"),
            "along": ({"attack": "min-max", "along": "sign", "clients": [0, 2]}, "lied"),
        },
        [{"attack": "ipm", "probability": 0.0}, {"attack": "alie", "clients": []}],
        [
            ({"attack": "ipm", "z": 3.0}, "faults.0: z belongs to attack: alie, and this is ipm"),
            ({"attack": "alie", "by": 3.0}, "faults.0: by belongs to attack: ipm, and this is alie"),
            (
                {},
                "faults.0.attack: this field is required (a little is enough, inner product manipulation, or the "
                "largest shift within the honest spread)",
            ),
        ],
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
        [({"returns": "with-style"}, _RETURNS)],
    ),
    "delay": Case(
        {"jitter": ({"by": PARETO, "probability": 0.4}, "delayed")},
        [{"by": PARETO, "probability": 0.0}, {"by": {"distribution": "constant", "value": 0.0}}],
    ),
    "device-classes": Case(
        {"three": ({"classes": SPEEDS}, "slowed")},
        [{"classes": [{"share": 1.0, "factor": 1.0}]}, {"classes": SPEEDS, "fraction": 0.0}],
        [
            ({"classes": SPEEDS[:2]}, "faults.0: the shares of classes add up to 0.8; expected 1"),
            ({"classes": []}, "faults.0.classes: [] is not accepted; expected 1 or more values"),
            (
                {"classes": [SPEEDS[0] | {"facter": 1}]},
                "faults.0.classes.0.facter: no such field; did you mean factor?",
            ),
        ],
    ),
    "device-speeds": Case(
        {
            "clients": ({"file": str(DATA / "speeds.csv")}, "slowed"),
            "devices": ({"file": str(DATA / "speeds-of-devices.csv"), "fraction": 0.5}, "slowed"),
        },
        [{"file": str(DATA / "speeds-of-nobody.csv")}, {"file": str(DATA / "speeds.csv"), "clients": []}],
        [({}, _NO_FILE)],
    ),
    "diurnal": Case(
        {
            "night": ({"period_s": 3.0, "low": 0.2, "high": 0.9}, "back"),
            "zones": ({"period_s": 2.0, "low": 0.0, "zones": 4, "announced": False}, "away"),
        },
        [{"low": 1.0}, {"low": 0.0, "fraction": 0.0}],
        [
            ({"low": 0.5, "high": 0.4}, "faults.0: low (0.5) is above high (0.4)"),
            ({"low": 0.0, "period_s": 1e-9}, "faults.0.period_s: 1e-09 is not accepted; expected at least 0.001"),
        ],
    ),
    "drop": Case(
        {
            "any": ({"probability": 0.3}, "dropped"),
            "plans": ({"probability": 0.5, "kind": "plan"}, "dropped"),
            "while": ({"at_s": 1.0, "for_s": 0.5, "every_s": 2.0}, "dropped"),
        },
        [{"probability": 0.0}, {"kind": "join", "direction": "down"}, {"fraction": 0.0}],
        [
            ({"every_s": 3, "for_s": 4}, "faults.0: every_s (3) needs for_s, which is at most as long"),
            ({"every_s": 3}, "faults.0: every_s (3) needs for_s, which is at most as long"),
            (
                {"kind": "commit"},
                "faults.0.kind: \"commit\" is not accepted; expected 'plan', 'report', 'join', 'snapshot', 'pull', "
                "'ask', 'tell', 'flood', 'have', 'measure' or 'measured'",
            ),
        ],
    ),
    "dropout": Case(
        {
            "before": ({"probability": 0.3}, "dropped"),
            "after": ({"probability": 0.3, "when": "after-training"}, "silenced"),
            "landing": ({"rates": [0.1, 0.6], "when": "before-landing"}, "dropped"),
            "groups": ({"probability": 0.4, "groups": 3, "when": "after-training"}, "silenced"),
        },
        [{"probability": 0.0}, {"rates": [0.0, 0.0]}, {"at_round": 999, "when": "after-training"}],
        [
            ({"rates": [0.1]}, "faults.0.rates.1: this field is required"),
            ({"rates": [0.1, 0.2], "probability": 0.3}, "faults.0: give probability or rates, not both"),
            (
                {"rates": [0.5, 0.2]},
                "faults.0: rates (0.5, 0.2) are not a lowest and a highest probability from 0 to 1",
            ),
        ],
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
        [
            ({"kinds": []}, "faults.0.kinds: [] is not accepted; expected 1 or more values"),
            ({"kinds": ["rudeness"]}, f'faults.0.kinds.0: "rudeness" is not accepted; expected {_KINDS}'),
        ],
    ),
    "label-flip": Case(
        {
            "reverse": ({"fraction": 0.5}, "mislabelled"),
            "pairs": ({"pairs": [[3, 8], [8, 3]], "clients": [0, 2], "at_round": 2}, "mislabelled"),
            "next": ({"to": "next", "probability": 0.5}, "mislabelled"),
        },
        [{"probability": 0.0}, {"to": "next", "clients": []}],
        [
            ({"to": "backwards"}, "faults.0.to: \"backwards\" is not accepted; expected 'reverse' or 'next'"),
            ({"to": "next", "pairs": [[3, 8]]}, "faults.0: give to or pairs, not both"),
            ({"pairs": [[3, 8], [3, 5]]}, "faults.0: pairs gives class 3 more than once"),
        ],
        world={"task": {"name": "digits", "model": "softmax", "batch_size": 8}},
        alters=False,
    ),
    "late-joiners": Case(
        {"half": ({"fraction": 0.5, "at_round": 3, "spread_rounds": 4}, "back")},
        [{"fraction": 0.0}, {"clients": []}],
        [({"at_round": 0}, "faults.0.at_round: 0 is not accepted; expected at least 1")],
    ),
    "link-trace": Case(
        {
            "changes": ({"file": str(DATA / "links.csv")}, "throttled"),
            "again": ({"file": str(DATA / "links.csv"), "every_s": 2.5, "clients": [0, 1, 2, 3]}, "throttled"),
            "devices": ({"file": str(DATA / "links-of-devices.csv"), "fraction": 0.5}, "throttled"),
        },
        [{"file": str(DATA / "links-of-nobody.csv")}, {"file": str(DATA / "links.csv"), "fraction": 0.0}],
        [
            ({}, _NO_FILE),
            (
                {"file": str(DATA / "links.csv"), "every_s": 0.0},
                "faults.0.every_s: 0.0 is not accepted; expected more than 0",
            ),
        ],
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
        [
            ({"start": 1, "stages": []}, "faults.0.stages: [] is not accepted; expected 1 or more values"),
            (
                {"start": 1, "stages": [{"rounds": 2**63, "target": 1}]},
                "faults.0.stages.0.rounds: 9223372036854775808 is not accepted; expected less than 4294967296",
            ),
            (
                {"start": 9, "stages": [{"rounds": 1, "target": 1}]},
                "faults.0.start is 9; expected at most 8, all clients",
            ),
            (
                {"start": 1, "stages": [{"rounds": 1, "target": 8}, {"rounds": 1, "target": 9}]},
                "faults.0.stages.1.target is 9; expected at most 8, all clients",
            ),
        ],
    ),
    "reorder": Case(
        {"any": ({"window_s": 0.8, "probability": 0.5}, "delayed")}, [{"window_s": 1.0, "probability": 0.0}]
    ),
    "replacement": Case(
        {"half": ({"active": 4, "every_rounds": 3}, "away")},
        [{"active": 8}, {"active": 3, "clients": []}],
        [
            ({}, "faults.0.active: this field is required (number of active clients)"),
            ({"active": 9}, "faults.0.active is 9; expected at most 8, all clients"),
        ],
    ),
    "server-crash": Case(
        {
            "asking": ({"at_round": 2, "every_rounds": 5, "phase": "asking", "down_s": 0.3}, "crashed"),
            "gathering": ({"at_round": 3, "down_s": 1.0}, "crashed"),
            "committing": ({"at_round": 3, "phase": "committing"}, "crashed"),
            "publishing": ({"at_round": 0, "every_rounds": 1, "phase": "publishing", "down_s": 0.1}, "crashed"),
        },
        [{"at_round": 999}],
        [({"at_round": 1, "phase": "sleeping"}, _PHASES)],
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
        [({}, "faults.0: give factor or pause_s, or both")],
    ),
    "trace": Case(
        {
            "clients": ({"file": str(DATA / "availability.csv")}, "back"),
            "devices": ({"file": str(DATA / "availability-of-devices.csv"), "clients": [0, 1, 2, 5]}, "back"),
        },
        [{"file": str(DATA / "availability-of-nobody.csv")}],
        [({}, _NO_FILE)],
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

MISTAKEN = [
    pytest.param(name, {"fault": name} | line, sentence, id=f"{name}-{number}")
    for name, case in CASES.items()
    for number, (line, sentence) in enumerate(case.mistakes)
]
"""(fault, line, sentence) of all lines that are refused."""
