"""Scenario files: accepted values, and the one sentence for every mistake."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from scenario_files import SMALL, write_scenario

from seedbus.agents.catch_up.settings import Lag
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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty; expected a mapping of fields"),
        ("# nothing\n", "it is empty; expected a mapping of fields"),
        ("- a\n- b\n", '["a", "b"] is not a scenario; expected a mapping of fields'),
        ("hello", '"hello" is not a scenario; expected a mapping of fields'),
        (
            "base: quickstart\nseeds: [1]\n",
            "it is a study, and no scenario; `seedbus study` makes its runs, and its --dry-run tells their cost",
        ),
        (
            "variants: {a: {base: quickstart}}\n",
            "it is a study, and no scenario; `seedbus study` makes its runs, and its --dry-run tells their cost",
        ),
        (b"\x00\x01\xff", "it is not UTF-8 text: it holds the byte 0xff at 2"),
        (SMALL.encode("utf-16"), "it is not UTF-8 text: it holds the byte 0xff at 0"),
        (SMALL + "seed: 1\nseed: 2\n", "line 7: seed is given twice"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    assert refusal(write_scenario(tmp_path, text)) == sentence


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


STOP = "rounds, target, bytes, simulated_s, epsilon, diverged"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        # fields that do not exist, at every level
        ("tsk=3", "tsk: no such field; did you mean task?"),
        ("task.dimensoin=3", "task.dimensoin: no such field; did you mean dimension?"),
        ("algorithm.learningrate=3", "algorithm.learningrate: no such field; did you mean learning_rate?"),
        ("partition={kind: dirichlet, alpha: 1, aplha: 2}", "partition.aplha: no such field; did you mean alpha?"),
        ("network.latecny=3", "network.latecny: no such field; did you mean latency?"),
        (
            "network.latency=100ms",
            'network.latency: "100ms" is not accepted; expected a number without a unit, such as 0.1 for seconds',
        ),
        (
            "network.latency={distribution: pareto, minimum: 1, shape: 1, shap: 2}",
            "network.latency.shap: no such field; did you mean shape?",
        ),
        ("faults=[{fault: drop, probabilty: 0.1}]", "faults.0.probabilty: no such field; did you mean probability?"),
        (
            "faults=[{fault: delay, by: {distribution: constant, vale: 1}}]",
            "faults.0.by.vale: no such field; did you mean value?",
        ),
        ("stop.target={value: 1, drection: above}", "stop.target.drection: no such field; did you mean direction?"),
        ("stop.x=3", f"stop.x: no such field; there are {STOP}"),
        ("stop={rounds: 3, 7: 1}", f"stop.7: no such field; there are {STOP}"),
        # unknown names
        ("algorithm.name=decomlf", 'algorithm.name: "decomlf" is not known; did you mean decomfl?'),
        (
            "algorithm.name=sgd",
            f'algorithm.name: "sgd" is not known; there are {", ".join(ALGORITHMS.all())}; one of a plug-in is '
            "known once that is loaded, by --plugin or seedbus.plugin.load_plugin",
        ),
        ("algorithm.name=3", f"algorithm.name: 3 is not known; there are {', '.join(ALGORITHMS.all())}"),
        ("algorithm=decomlf", 'algorithm.name: "decomlf" is not known; did you mean decomfl?'),
        ("task.name=mnst", 'task.name: "mnst" is not known; did you mean mnist?'),
        (
            "task.name=null",
            'task.name: null is YAML\'s word for nothing; write "null", in quotes, for the task of that name',
        ),
        ("partition.kind=dirchlet", 'partition.kind: "dirchlet" is not known; did you mean dirichlet?'),
        ("partition.kidn=iid", "partition.kidn: no such field; did you mean kind?"),
        ("partition.alpha=3", "partition.kind: this field is required; there are " + ", ".join(PARTITIONS.all())),
        ("faults=[{fault: drp}]", 'faults.0.fault: "drp" is not known; did you mean drop?'),
        ("faults=[{}]", "faults.0.fault: this field is required; there are " + ", ".join(FAULTS.all())),
        (
            "network.latency.distribution=lognorml",
            'network.latency.distribution: "lognorml" is not known; did you mean lognormal?',
        ),
        # missing fields
        ("stop={}", "stop: rounds is missing, and simulated_s too; one of them is needed, so that the run ends"),
        ("algorithm={}", "algorithm.name: this field is required; there are " + ", ".join(ALGORITHMS.all())),
        ("algorithm={name: hiso, clip: [2]}", "algorithm.clip.1: this field is required"),
        *(
            (
                f"algorithm.learning_rate={written}",
                f"algorithm.learning_rate: {quoted} is not accepted; a schedule maps rounds to values and begins at "
                "round 0, for example {0: 25, 500: 50}",
            )
            for written, quoted in (
                ("{}", "{}"),
                ("{1: 0.1}", '{"1": 0.1}'),
                ("{0: 0.1, -5: 0.2}", '{"0": 0.1, "-5": 0.2}'),
            )
        ),
        # fields that contradict each other
        ("participation.cohort=5", "participation: cohort (5) is larger than clients (4)"),
        ("participation.quorum=3", "participation: quorum (3) is larger than the cohort (2)"),
        ("participation.fraction=0.5", "participation: give cohort or fraction, not both"),
        ("algorithm={name: mezo}", "participation.clients is 4; algorithm mezo takes at most 1"),
        (
            "algorithm={name: hiso, directions: rademacher, perturbations: 1}",
            "algorithm: rademacher directions have u² = 1 and tell H nothing at perturbations: 1; use gaussian",
        ),
        (
            "faults=[{fault: drop, every_rounds: 3}]",
            "faults.0: every_rounds (3) needs for_rounds, which is at most as many",
        ),
        (
            "faults=[{fault: delay, clients: [1, 4], by: {distribution: constant}}]",
            "faults.0.clients names 4; clients are 0 to 3",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_gets_one_sentence_with_the_value_and_what_is_accepted(
    tmp_path: Path, setting: str, sentence: str
) -> None:
    assert refusal(write_scenario(tmp_path), setting) == sentence


WHOLE, NUMBER, FINITE = "a whole number", "a number", "a finite number"
SCHEDULE = ", or a schedule, from round to value: {0: VALUE, 500: VALUE}"


@pytest.mark.parametrize(
    ("setting", "shown", "accepted"),
    [
        ("stop.rounds=abc", '"abc"', WHOLE),
        ("stop.rounds='3'", '"3"', WHOLE),
        ("stop.rounds=true", "true", WHOLE),
        ("stop.rounds=3.5", "3.5", WHOLE),
        ("seed=null", "null", WHOLE),
        ("stop.rounds=010", '"010"', WHOLE),
        ("stop.rounds=1:30", '"1:30"', WHOLE),
        ("stop.rounds=0", "0", "at least 1"),
        ("verify=yes", '"yes"', "true or false"),
        ("verify=1", "1", "true or false"),
        ("network=null", "null", "a mapping of fields"),
        ("network.latency=[1]", "[1]", "a number or a mapping of fields"),
        ("network.latency=true", "true", "a number or a mapping of fields"),
        ("network.latency=-1", "-1", "at least 0.0"),
        ("algorithm=3", "3", "a mapping"),
        ("faults={fault: drop}", '{"fault": "drop"}', "a list"),
        ("description=3", "3", "text, in quotes if need be"),
        ("name=null", "null", "text, in quotes if need be"),
        ("seed=-1", "-1", "at least 0"),
        (f"seed={2**63}", f"{2**63}", f"less than {2**63}"),
        ("algorithm.momentum=1", "1", "less than 1.0"),
        ("algorithm.learning_rate=0", "0", "more than 1e-37" + SCHEDULE),
        ("algorithm.learning_rate=x", '"x"', NUMBER + SCHEDULE),
        ("algorithm.learning_rate=[1, 2]", "[1, 2]", NUMBER + SCHEDULE),
        ("algorithm.learning_rate=.nan", "NaN", FINITE + SCHEDULE),
        ("algorithm.learning_rate=1e999", "Infinity", FINITE + SCHEDULE),
        ("participation.deadline_s=.inf", "Infinity", FINITE),
        ("algorithm.perturbations=0", "0", "at least 1" + SCHEDULE),
        ("algorithm.estimator=up", '"up"', "'forward', 'central', 'projection' or 'forward-mode'" + SCHEDULE),
        ("algorithm.directions=3", "3", "a mapping of fields"),
        ("secure_aggregation.neighbours=5", "5", "a multiple of 2 or 'all'"),
        ("lag.snapshot_after_bytes=x", '"x"', "a whole number or 'snapshot'"),
        ("evaluation.split=all", '"all"', "'train', 'validation' or 'test'"),
    ],
)
def test_a_wrong_value_is_shown_beside_what_is_accepted(
    tmp_path: Path, setting: str, shown: str, accepted: str
) -> None:
    where = setting.partition("=")[0]
    assert refusal(write_scenario(tmp_path), setting) == f"{where}: {shown} is not accepted; expected {accepted}"


@pytest.mark.parametrize("budget", ["10", "[5]", '"often"', "true"])
def test_a_lag_that_is_no_mapping_is_told_what_lag_is_and_what_makes_clients_lag(tmp_path: Path, budget: str) -> None:
    assert refusal(write_scenario(tmp_path, SMALL + f"lag: {budget}\n")) == (
        f"lag: {budget} is not accepted; expected a snapshot budget such as {{snapshot_after_commits: 10}}, beyond "
        "which a client gets the model, not the commits that it missed; what makes clients lag is a "
        "participation.cohort that is a small part of the clients, and faults such as churn, dropout and drop "
        "(docs/lag.md)"
    )
    assert load(write_scenario(tmp_path), ["lag={snapshot_after_commits: 10}"]).lag == Lag(snapshot_after_commits=10)


def test_a_number_is_short_for_what_is_always_the_same(tmp_path: Path) -> None:
    short = load(write_scenario(tmp_path), ["network.latency=0.5", "faults=[{fault: straggler, factor: 10}]"])
    assert short.network.latency == Constant(value=0.5)
    assert short.resolved()["faults"][0]["factor"] == {"distribution": "constant", "value": 10.0}


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("faults=[{fault: delay, by: [3]}]", "by: [3] is not accepted; expected a number or a mapping of fields"),
        ("stop.target={value: 1, direction: up}", 'target.direction: "up" is not accepted; expected above or below'),
        ("algorithm.perturbations={0: 5, 9: 1.5}", "perturbations.9: 1.5 is not accepted; expected a whole number"),
        ("algorithm.perturbations={0: 5, x: 6}", 'ons.x: "x" is not accepted; expected the number of a round'),
        (
            "algorithm.estimator={0: forward, 9: up}",
            "\"up\" is not accepted; expected 'forward', 'central', 'projection' or 'forward-mode'",
        ),
        ("task.dimension=9999999999999", f"task.dimension is 9999999999999; at most {2**40} coordinates are accepted"),
    ],
)
def test_a_wrong_value_deep_inside_is_found(tmp_path: Path, setting: str, sentence: str) -> None:
    refused = refusal(write_scenario(tmp_path), setting)
    assert refused.endswith(sentence) and "\n" not in refused


@pytest.mark.parametrize("name", ["../evil", "a/b", "..", ".hidden", "-x", "é", "日本", "a" * 65, "'a b'", "''"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    refused = refusal(write_scenario(tmp_path), f"name={name}")
    assert "at most 64 of A-Z a-z 0-9 . _ -, the first a letter or digit" in refused


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


@pytest.mark.parametrize("setting", ["noequals", "=3", ".=3", "a..b=3", "stop.=3", ".stop=3"])
def test_a_setting_without_a_field_is_refused(tmp_path: Path, setting: str) -> None:
    assert refusal(write_scenario(tmp_path), setting) == "expected field=value, like algorithm.momentum=0.5"


@pytest.mark.parametrize(("separator", "shown"), [(";;", '";;"'), ("''", '""')])
def test_a_text_that_is_too_long_or_too_short_is_refused_by_what_the_field_takes(
    tmp_path: Path, separator: str, shown: str
) -> None:
    task = f"task={{name: table, file: t.csv, target: y, separator: {separator}}}"
    assert refusal(write_scenario(tmp_path), task) == (
        f"task.separator: {shown} is not accepted; expected the character between the cells of CSV"
    )


@pytest.mark.parametrize("settings", ["stop.rounds=3", {"stop.rounds": 3}])
def test_settings_in_python_that_are_no_list_are_refused_as_a_whole(tmp_path: Path, settings: Any) -> None:
    with pytest.raises(ScenarioError, match=r"^settings: .*3.* is not accepted; expected a list of field=value, like"):
        load(write_scenario(tmp_path), settings)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("name.x=3", 'name is "small", which has no fields; there is no x'),
        ("stop.rounds.x=3", "stop.rounds is 3, which has no fields; there is no x"),
        ("network.up_mbps=3", "network is null, which has no fields; there is no up_mbps"),
        *((f"faults.{no}.probability=1", f"has entries 0 to 0; there is no {no}") for no in ("1", "-1", "x", "²")),
        (f"faults.{'1' * 5000}=3", "which has entries 0 to 0; there is no " + "1" * 199 + "…"),
        ("faults.1=3", "which has entries 0 to 0; there is no 1"),
        ("stop.rounds=[", "line 1: while parsing a flow node, expected the node content, but found '<stream end>'"),
        ("stop.rounds=!!int 3", "line 1: a tag (!!int) is not accepted; a scenario is plain data"),
    ],
)  # fmt: skip
def test_a_setting_that_leads_nowhere_is_refused(tmp_path: Path, setting: str, sentence: str) -> None:
    assert refusal(write_scenario(tmp_path, SMALL + FAULT), setting).endswith(sentence)


def test_settings_reach_fields_and_places_in_lists_and_rounds_of_schedules(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, SMALL + FAULT.removesuffix("network:\n"))
    schedule = ["algorithm.learning_rate={0: 0.1, 500: 0.2}", "algorithm.learning_rate.500=1e-3"]
    scenario = load(path, ["faults.0.probability=0.25", "network.latency={distribution: constant}", *schedule])
    assert vars(scenario.faults[0])["probability"] == 0.25
    assert vars(scenario.algorithm)["learning_rate"] == {0: 0.1, 500: 0.001}


@pytest.mark.parametrize(
    ("settings", "begin"),
    [
        (["seed=-1", "verify=2", "stop.rounds=9"], [" --set seed=-1: seed: -1 is", " --set verify=2: verify: 2 is"]),
        (["algorithm=hiso", "algorithm.nu=x"], [" --set algorithm.nu=x: algorithm.nu"]),
        (["verify=true", "partition.alpha=3"], [" --set partition.alpha=3: partition.kind: this field is required"]),
        (
            ["participation.clients=1", "participation.cohort=5"],
            [" --set participation.clients=1 --set participation.cohort=5: participation: cohort (5) is larger"],
        ),
        (
            ["algorithm=hiso", "algorithm.nu=0.1", "stop.epsilon=1"],
            [" --set stop.epsilon=1: stop.epsilon is the limit"],
        ),
        (
            ["algorithm=hiso", "algorithm=fedavg", "algorithm.smoothing=1"],
            [" --set algorithm=fedavg --set algorithm.smoothing=1: algorithm.smoothing: no such field"],
        ),
        (
            ["participation.quorum=1", "participation.mode=stream"],
            [" --set participation.mode=stream: participation.mode: stream commits each report"],
        ),
        (["seed=3", "participation.cohort=5"], [" --set participation.cohort=5: participation: cohort (5) is larger"]),
        (["algorithm=mezo", "seed=3"], [" --set algorithm=mezo: participation.clients is 4; algorithm mezo takes at"]),
        (["faults=[drop]", "faults.0.probability=2"], [" --set faults.0.probability=2: faults.0.probability: 2 is"]),
        (["seed=-1", "seed=-1"], [": seed: -1 is not accepted"]),
    ],
)
def test_a_mistake_names_the_setting_of_a_wrong_value_or_all_settings_that_make_it(
    tmp_path: Path, settings: list[str], begin: list[str]
) -> None:
    path = write_scenario(tmp_path)
    with pytest.raises(ScenarioError) as raised:
        load(path, settings)
    said = sorted(raised.value.sentences)
    assert len(said) == len(begin)
    for sentence, expected in zip(said, begin, strict=True):
        assert sentence.startswith(f"{path}{expected}")


def test_a_mistake_of_the_file_names_no_setting(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, SMALL + "seed: -1\n")
    with pytest.raises(ScenarioError, match=re.escape(f"{path}: seed: -1 is not accepted; expected at least 0")):
        load(path, ["verify=true"])


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
    refused = refusal(path, "algorithm=hisso", "algorithm.nu=1")
    assert refused == 'algorithm.name: "hisso" is not known; did you mean hiso?'
