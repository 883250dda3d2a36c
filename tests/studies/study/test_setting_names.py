"""Rows are named by the settings in which they differ."""

from __future__ import annotations

from typing import Any

from worlds import HISO, lossy, scenario

from seedbus.studies.study.setting_names import names, settings_of


def of(*scenarios: Any) -> list[str]:
    return names([settings_of(each) for each in scenarios])


def test_a_fault_with_one_setting_is_named_by_its_name_and_value() -> None:
    assert of(*(lossy(rate) for rate in (0.1, 0.3, 0.5))) == ["drop 0.1", "drop 0.3", "drop 0.5"]
    assert of(lossy(0.1), lossy(0.3), lossy(faults=[])) == ["drop 0.1", "drop 0.3", "no faults"]


def test_two_settings_of_one_fault_are_named_each() -> None:
    faults = [
        {"fault": "straggler", "pause_s": pause, "probability": share} for pause, share in ((1, 0.5), (2, 0.5), (2, 1))
    ]
    found = of(*(lossy(faults=[fault]) for fault in faults))
    assert found == ["probability 0.5, pause_s 1.0", "probability 0.5, pause_s 2.0", "probability 1.0, pause_s 2.0"]


def test_a_field_that_means_nothing_beside_an_attack_does_not_name_it() -> None:
    attacks = ({"attack": "alie"}, {"attack": "min-max"}, {"attack": "ipm", "by": 5}, {"attack": "ipm", "by": 2})
    rows = [lossy(faults=[{"fault": "colluding", **attack}]) for attack in attacks]
    assert of(*rows[:3], lossy(faults=[])) == ["colluding alie", "colluding min-max", "colluding ipm", "no faults"]
    assert of(*rows) == ["attack alie", "attack min-max", "attack ipm, by 5.0", "attack ipm, by 2.0"]


def test_other_algorithms_are_named_by_name_and_compared_with_their_own_kind_only() -> None:
    hisos = [scenario(algorithm=HISO | {"learning_rate": rate}) for rate in (0.001, 0.002)]
    assert of(scenario(), *hisos) == ["decomfl", "hiso, learning_rate 0.001", "hiso, learning_rate 0.002"]
    assert of(scenario(), hisos[0]) == ["decomfl", "hiso"]


def test_fields_with_one_last_part_are_told_apart_by_the_part_before() -> None:
    links = [
        scenario(network={"latency": {"distribution": "constant", "value": value}}, compute={"evaluation": other})
        for value, other in (
            (1, {"distribution": "constant", "value": 3}),
            (2, {"distribution": "constant", "value": 4}),
        )
    ]
    assert of(*links) == ["latency value 1.0, evaluation value 3.0", "latency value 2.0, evaluation value 4.0"]


def test_a_section_that_is_not_set_is_named_as_a_whole_and_others_by_their_differences() -> None:
    private = [{"privacy": {"clip": 5, "noise_multiplier": noise}} for noise in (1.0, 2.0)]
    assert names([{"privacy": None}, private[0]]) == ["no privacy", "privacy"] == names([{}, private[0]])
    assert names([{"privacy": None}, *private]) == ["no privacy", "noise_multiplier 1.0", "noise_multiplier 2.0"]


def test_equal_scenarios_have_no_name() -> None:
    assert of(scenario(), scenario()) == ["", ""]


def test_where_three_settings_do_not_tell_scenarios_apart_their_own_differences_follow() -> None:
    small = {"clients": 4, "cohort": 2, "quorum": 1}
    large = {"clients": 9, "cohort": 3, "quorum": 2}
    each = [(small, 5), (large, 5), (large, 7), (large, 9)]
    found = of(*(scenario(participation=who, stop={"rounds": rounds}) for who, rounds in each))
    shared = "clients 9, cohort 3, quorum 2, …"
    assert found[1:] == [f"{shared}, rounds 5", f"{shared}, rounds 7", f"{shared}, rounds 9"]
    assert found[0] == "clients 4, cohort 2, quorum 1, …"


def test_plug_ins_are_named_only_where_nothing_else_tells_scenarios_apart() -> None:
    old, new = {"mine": "aaaa"}, {"mine": "bbbb"}
    own = {"algorithm": {"name": "own"}}
    assert names([own | {"plugins": old}, {"algorithm": {"name": "decomfl"}}]) == ["own", "decomfl"]
    assert names([own | {"plugins": old}, own | {"plugins": new}]) == ["mine aaaa", "mine bbbb"]
    three = [own | {"plugins": old}, own | {"plugins": new}, {"algorithm": {"name": "decomfl"}}]
    assert names(three) == ["own, mine aaaa", "own, mine bbbb", "decomfl"]
