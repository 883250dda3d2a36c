"""Scenario files: accepted values, and the one sentence for every mistake."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenario_files import SMALL, write_scenario

from seedbus.bus.network import Constant
from seedbus.models.partition import PARTITIONS
from seedbus.models.task import TASKS
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.loading import library, load
from seedbus.scenarios.schema.scenario import json_schema
from seedbus.scenarios.schema.yaml_text import dump


def refusal(source: Any, *settings: str) -> str:
    """Return the sentences of a refused scenario, without the file and settings that each begins with."""
    with pytest.raises(ScenarioError) as raised:
        load(source, list(settings))
    for problem in str(raised.value).splitlines():
        assert problem.startswith((str(source)[:199], "--set "))
    return "\n".join(raised.value.problems)


@pytest.mark.few(20)
@pytest.mark.parametrize("name", library())
def test_a_scenario_of_the_library_is_sound_and_comes_back_from_its_own_text(tmp_path: Path, name: str) -> None:
    scenario = load(name)
    assert scenario.name == name.replace("/", "-") and scenario.description
    assert load(write_scenario(tmp_path, dump(scenario.resolved()))) == scenario


@pytest.mark.slow
def test_a_file_of_many_mistakes_is_refused_with_the_first_of_them(tmp_path: Path) -> None:
    began = time.process_time()
    sentences = refusal(
        write_scenario(tmp_path, SMALL + "".join(f"k{number}:\n" for number in range(9000)))
    ).splitlines()
    assert len(sentences) == 101 and sentences[-1] == "and 8,900 further mistakes"
    assert time.process_time() - began < 5
    assert "more than 65,536 characters" in refusal(write_scenario(tmp_path, SMALL + "#" * 2**20))


@pytest.mark.parametrize("levels", [300, 5000])
def test_what_is_nested_too_deeply_is_refused_in_every_way_to_write_it(tmp_path: Path, levels: int) -> None:
    deep: Any = 3
    for _ in range(levels):
        deep = {"a": deep}
    with pytest.raises(ScenarioError, match=r"nested too deeply; a scenario has a few levels$"):
        load({"name": "deep", "task": deep})
    assert refusal(write_scenario(tmp_path), "task." + "a." * levels + "a=3").startswith("it is nested too deeply;")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nope.yaml").startswith("there is no such file and no scenario of that name; `seedbus")
    assert refusal("quickstrat").endswith("did you mean quickstart?")
    assert refusal("runs/quickstart.yaml").endswith("did you mean quickstart?")
    assert refusal("figures/decomfl-table-6").startswith("it is a study, and no scenario; `seedbus study` makes")
    assert refusal("figures/decomfl-table-6.yaml").startswith("it is a study, and no scenario;")
    assert refusal(tmp_path) == "it is not a file; expected a scenario file, or a name from `seedbus list`"
    assert refusal("x" * 5000) == "it cannot be read (File name too long)"


def test_a_number_is_short_for_what_is_always_the_same(tmp_path: Path) -> None:
    short = load(write_scenario(tmp_path), ["network.latency=0.5", "faults=[{fault: straggler, factor: 10}]"])
    assert short.network.latency == Constant(value=0.5)
    assert short.resolved()["faults"][0]["factor"] == {"distribution": "constant", "value": 10.0}


@pytest.mark.parametrize(
    ("called", "name"), [("my run.yaml", "my-run"), ("日本.yaml", "scenario"), (".x.yaml", "x"), ("a" * 99, "a" * 64)]
)
def test_a_scenario_without_a_name_is_called_after_its_file(tmp_path: Path, called: str, name: str) -> None:
    assert load(write_scenario(tmp_path, SMALL.removeprefix("name: small\n"), called)).name == name


def test_every_mistake_of_a_file_is_told_and_each_names_the_file(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, SMALL.replace("rounds: 3", "rounds: x") + "seed: -1\ntsk: 1\n")
    with pytest.raises(ScenarioError) as raised:
        load(path)
    lines = str(raised.value).splitlines()
    assert len(lines) == 3 and all(line.startswith(f"{path}: ") for line in lines)


def test_long_values_are_cut_off(tmp_path: Path) -> None:
    assert len(refusal(write_scenario(tmp_path), "seed=" + "9" * 5000)) < 200
    assert len(refusal(write_scenario(tmp_path), f"seed={'x' * 5000}")) < 200


@pytest.mark.parametrize("setting", ["seed={}", "{}", "{}=1", "seed=[{}", "task.{}=1", "faults.{}=1"])
def test_a_long_setting_is_cut_off_where_a_sentence_names_it(tmp_path: Path, setting: str) -> None:
    path = write_scenario(tmp_path)
    with pytest.raises(ScenarioError) as raised:
        load(path, [setting.format("x" * 5000)])
    assert len(str(raised.value)) < 1200


FAULT = "faults: [{fault: delay, probability: 0.5, by: {distribution: constant}}]\nnetwork:\n"


@pytest.mark.parametrize("settings", ["stop.rounds=3", 3])
def test_settings_in_python_that_are_neither_a_list_nor_a_mapping_are_refused_as_a_whole(
    tmp_path: Path, settings: Any
) -> None:
    with pytest.raises(ScenarioError, match=r"^settings: .*3.* is not accepted; expected a list of field=value, like"):
        load(write_scenario(tmp_path), settings)


def test_settings_reach_fields_and_places_in_lists_and_rounds_of_schedules(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, SMALL + FAULT.removesuffix("network:\n"))
    schedule = ["algorithm.learning_rate={0: 0.1, 500: 0.2}", "algorithm.learning_rate.500=1e-3"]
    scenario = load(path, ["faults.0.probability=0.25", "network.latency={distribution: constant}", *schedule])
    assert vars(scenario.faults[0])["probability"] == 0.25
    assert vars(scenario.algorithm)["learning_rate"] == {0: 0.1, 500: 0.001}
    values = {"faults.0.probability": np.float64(0.25), "network.latency": {"distribution": "constant"}}
    values |= {"algorithm.learning_rate": {0: 0.1, 500: 0.2}, "algorithm.learning_rate.500": 1e-3, "name": "1e3"}
    assert load(path, values) == scenario.model_copy(update={"name": "1e3"}), "a mapping sets the same"


@pytest.mark.parametrize(
    ("word", "same"),
    [
        ("task=mnist", "task={name: mnist}"),
        ("algorithm=hiso", "algorithm={name: hiso}"),
        ("partition=shards", "partition={kind: shards}"),
        ("participation.selection=rarest", "participation.selection={policy: rarest}"),
        ("algorithm.aggregation=median", "algorithm.aggregation={rule: median}"),
        ("network.latency=constant", "network.latency={distribution: constant}"),
        ("faults=[duplicate]", "faults=[{fault: duplicate}]"),
    ],
)
def test_a_name_alone_stands_for_its_section_with_the_defaults(tmp_path: Path, word: str, same: str) -> None:
    path = write_scenario(tmp_path, SMALL.replace("{name: decomfl}", "{name: decomfl, learning_rate: 7}"))
    assert load(path, ["task=digits", word]) == load(path, ["task=digits", same])


@pytest.mark.slow
def test_the_json_schema_accepts_a_name_alone_too() -> None:
    names = {field: json_schema()["properties"][field]["anyOf"][0]["enum"] for field in ("task", "algorithm")}
    assert names == {"task": sorted(TASKS.all()), "algorithm": sorted(ALGORITHMS.all())}


def test_a_field_of_a_section_that_is_a_name_alone_can_be_set(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, SMALL.replace("{name: decomfl}", "hiso").replace("quadratic", "digits"))
    both = load(path, ["algorithm.nu=0.5", "partition=dirichlet", "partition.alpha=0.5"])
    assert both == load(path, ["algorithm={name: hiso, nu: 0.5}", "partition={kind: dirichlet, alpha: 0.5}"])


@pytest.mark.parametrize(
    ("setting", "begin", "names"),
    [
        ("algorithm.name=sgd", 'algorithm.name: "sgd" is not known; there are ', ALGORITHMS.all()),
        ("algorithm.name=3", "algorithm.name: 3 is not known; there are ", ALGORITHMS.all()),
        ("algorithm={}", "algorithm.name: this field is required; there are ", ALGORITHMS.all()),
        ("partition.alpha=3", "partition.kind: this field is required; there are ", PARTITIONS.all()),
        ("faults=[{}]", "faults.0.fault: this field is required; there are ", FAULTS.all()),
    ],
)
def test_whoever_gives_no_name_or_one_of_nothing_is_told_all_that_there_are(
    tmp_path: Path, setting: str, begin: str, names: Any
) -> None:
    sentence, _, more = refusal(write_scenario(tmp_path), setting).partition("; one of a plug-in is known once")
    assert sentence == begin + ", ".join(names) and bool(more) == (setting == "algorithm.name=sgd")
