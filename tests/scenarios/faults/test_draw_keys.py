"""The texts that key the draws of faults and messages are those of the first release, whatever is called what now."""

from __future__ import annotations

import pytest

from seedbus.bus import Kind
from seedbus.bus.in_flight import random_key
from seedbus.bus.network import Constant, Duration, Exponential, Lognormal, Pareto, Uniform
from seedbus.scenarios.faults.base import FAULTS, MESSAGE_KEY
from seedbus.scenarios.faults.delay import Delay
from seedbus.scenarios.faults.device_classes import DeviceClass
from seedbus.scenarios.faults.drop import Drop
from seedbus.scenarios.faults.ramp import Stage
from seedbus.scenarios.faults.straggler import Straggler
from seedbus.settings import Settings, draw_key

ROUND = "clients fraction probability at_round for_rounds every_rounds"
TRAFFIC = f"{ROUND} direction at_s for_s every_s"
KEYS = (
    """
Bandwidth ROUND up_mbps down_mbps
Byzantine ROUND attack by sigma value
Churn clients fraction announced returns stays away initially
Colluding ROUND attack z by along
Constant distribution value
Corrupt MESSAGE bits
Crash ROUND returns
Delay MESSAGE by
DeviceClass share factor
DeviceClasses ROUND classes
DeviceSpeeds clients fraction
Diurnal clients fraction announced returns period_s low high zones
Drop MESSAGE
Dropout ROUND when rates groups
Duplicate MESSAGE copies
Exponential distribution mean
Hostile ROUND kinds
LabelFlip ROUND to pairs
LateJoiners clients fraction at_round spread_rounds
LinkTrace clients fraction every_s
Lognormal distribution median sigma
Pareto distribution minimum shape
Partition TRAFFIC
Ramp clients fraction announced returns start stages
Reorder MESSAGE window_s
Replacement clients fraction announced returns active every_rounds probability
ServerCrash at_round every_rounds phase down_s
Stage rounds target
Straggler ROUND factor drawn pause_s
Trace clients fraction announced returns every_s
Uniform distribution low high
""".replace("MESSAGE", f"{TRAFFIC} kind")
    .replace("TRAFFIC", TRAFFIC)
    .replace("ROUND", ROUND)
)
KINDS = """
LINK JOIN WELCOME REFUSE COMMIT EVALUATION PLAN REPORT BYE DECLINE WAKE PEAK SNAPSHOT PULL FETCH PIECE ASK
TELL FLOOD HAVE MEASURE MEASURED
"""
PARTS: list[type[Settings]] = [Constant, Exponential, Lognormal, Pareto, Uniform, DeviceClass, Stage]


class OtherDelay(Drop):
    """The fault with other names of its class and of two fields, and with a field more."""

    keyed_as = f"Delay {MESSAGE_KEY} seconds=by".replace("probability", "chance=probability")
    chance: float = 1.0
    seconds: Duration
    again: int = 0


class Unnamed(Drop):
    """A plug-in's fault, which says no key."""


def test_no_fault_that_comes_with_seedbus_has_another_key() -> None:
    """A new fault is added here; the lines of the others stay as they are, or every run with them changes."""
    named = [vars(each)["keyed_as"] for each in [*FAULTS.all().values(), *PARTS]]
    assert sorted(named) == KEYS.strip().splitlines()


@pytest.mark.parametrize("kind", [*FAULTS.all().values(), *PARTS])
def test_every_field_of_a_fault_is_in_its_key(kind: type[Settings]) -> None:
    """But the file, whose path keys nothing, and the fault's own name, which the class has."""
    names = {each.partition("=")[0] for each in vars(kind)["keyed_as"].split()[1:]}
    assert names | {"fault"} >= {name for name, field in kind.model_fields.items() if field.repr}


def test_a_key_has_the_values_that_are_not_defaults_and_all_of_a_distribution() -> None:
    fault = Straggler(fraction=0.2, factor=Lognormal(median=8, sigma=0.5))
    text = "Straggler(fraction=0.2, factor=Lognormal(distribution='lognormal', median=8.0, sigma=0.5))"
    assert draw_key(fault) == repr(fault) == text


def test_a_renaming_and_a_new_field_change_no_key() -> None:
    by = {"distribution": "exponential", "mean": 2.0}
    before = Delay.model_validate({"probability": 0.5, "by": by})
    assert draw_key(OtherDelay.model_validate({"chance": 0.5, "seconds": by})) == draw_key(before) == repr(before)


def test_a_fault_of_a_plugin_is_keyed_by_its_own_repr() -> None:
    assert draw_key(Unnamed(probability=0.5)) == "Unnamed(probability=0.5)"


def test_messages_are_keyed_by_the_names_of_their_kinds() -> None:
    assert [random_key((kind, 3, 2, 1, 0))[1] for kind in Kind] == KINDS.split()
