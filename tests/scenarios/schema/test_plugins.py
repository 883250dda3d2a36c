"""Plug-ins: what they define is known everywhere by existing, and what is wrong with one is one sentence."""

from __future__ import annotations

import py_compile
from pathlib import Path
from typing import Any, Literal

import pytest
from plugin_files import SIGNS, forget
from reference_tables import tables

from seedbus.discovery import KINDS, PLUGINS
from seedbus.plugin import ScalarOnly, load_module, load_plugin, register
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import load, validate
from seedbus.scenarios.schema.scenario import json_schema

DOCUMENT: dict[str, Any] = {
    "name": "with-plug-ins",
    "task": "bowl",
    "partition": "alternating",
    "algorithm": {"name": "signs", "aggregation": "first"},
    "participation": {"clients": 4, "cohort": 2, "selection": "lowest"},
    "faults": [{"fault": "deaf"}],
    "stop": {"rounds": 3},
}


pytestmark = pytest.mark.usefixtures("no_plugins")


def file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.slow
def test_everything_that_a_plug_in_defines_is_in_the_schema_the_reference_and_the_sentences() -> None:
    before = {kind.noun: set(kind.all()) for kind in KINDS}
    load_plugin(SIGNS)
    new = {kind.noun: set(kind.all()) - before[kind.noun] for kind in KINDS}
    assert new.pop("tracker") == {"paper"}  # no scenario names a tracker
    assert new == {
        "algorithm": {"signs", "damped"},
        "method": {"damped"},
        "codec": {"halves"},
        "channel": {"quiet"},
        "rule": {"first"},
        "law": {"sparse-signs"},
        "selection policy": {"lowest"},
        "partition": {"alternating"},
        "fault": {"deaf"},
        "task": {"bowl"},
    }
    text, schema = tables(), str(json_schema())
    for name in set.union(*new.values()):
        assert f": {name}\n" in text and f"'{name}'" in schema
    with pytest.raises(ScenarioError, match=r"algorithm.name: \"sings\" is not known; did you mean signs\?"):
        load("quickstart", ["algorithm=sings"])
    with pytest.raises(ScenarioError, match=r"algorithm.factor: 0 is not accepted; expected more than 0"):
        load("quickstart", ["algorithm=damped", "algorithm.factor=0"])


def test_a_scenario_that_uses_plug_ins_names_them_with_their_digests_and_no_other_does() -> None:
    load_plugin(SIGNS)
    what = validate({**DOCUMENT, "partition": {"kind": "iid"}, "task": {"name": "bowl"}} | _expanded(), "a test")
    assert what.plugins == {"signs": PLUGINS["signs"].digest}
    assert validate(what.resolved(), "again") == what
    for algorithm in (
        {"name": "damped"},
        {"name": "fedavg", "compression": "halves"},
        {"name": "fedavg", "channel": "quiet"},
    ):
        assert load("fashion/fedavg", [f"algorithm={algorithm}"]).plugins
    assert "plugins" not in load("quickstart").resolved()


def _expanded() -> dict[str, Any]:
    participation = {"clients": 4, "cohort": 2, "selection": {"policy": "lowest"}}
    return {"participation": participation}


@pytest.mark.slow
def test_a_scenario_that_needs_a_plug_in_is_refused_where_it_is_missing_or_differs(tmp_path: Path) -> None:
    load_plugin(SIGNS)
    resolved = load("quickstart", ["algorithm=signs"]).resolved()
    digest = PLUGINS["signs"].digest
    forget()
    with pytest.raises(ScenarioError) as missing:
        validate(resolved, "it")
    assert missing.value.problems == [
        f"plugins.signs: this process has not loaded that plug-in (source digest {digest}); give its file or "
        "folder, named signs, by --plugin PATH, SEEDBUS_PLUGINS, or seedbus.plugin.load_plugin in Python"
    ]
    other = file(tmp_path, SIGNS.read_text() + "\n", "signs.py")
    load_plugin(other)
    with pytest.raises(ScenarioError) as differs:
        validate(resolved, "it")
    assert differs.value.problems == [
        f"plugins.signs: another source is needed than {other}: digest {digest}, and this one's is "
        f"{PLUGINS['signs'].digest}"
    ]
    with pytest.raises(ScenarioError, match=r'plugins: \{"signs": "3"\} is not accepted; expected'):
        validate(resolved | {"plugins": {"signs": "3"}}, "it")


PLANTED = 'raise AssertionError("planted bytecode ran")'
FAULT = """
from typing import Literal
from seedbus.plugin import MessageSelector
class Mine(MessageSelector):
    fault: Literal["mine"] = "mine"
"""


def bytecode(path: Path, text: str) -> Path:
    """Leave bytecode of another text beside a file, such as Python reads without looking at the source."""
    path.write_text(PLANTED)
    kept = py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    path.write_text(text)
    return Path(str(kept))


@pytest.mark.slow
def test_bytecode_beside_a_plug_in_is_neither_run_nor_written(tmp_path: Path) -> None:
    mine, package = tmp_path / "mine.py", tmp_path / "inner"
    package.mkdir()
    kept = [
        bytecode(mine, FAULT),
        bytecode(package / "__init__.py", "from .part import Mine"),
        bytecode(package / "part.py", FAULT.replace("mine", "inner")),
    ]
    before = [each.read_bytes() for each in kept]
    load_plugin(mine)
    load_plugin(package)
    assert load("quickstart", ["faults=[{fault: mine}, {fault: inner}]", "participation.deadline_s=1"]).plugins
    assert [each.read_bytes() for each in kept] == before


def test_a_folder_of_a_plug_in_needs_no_init_and_its_bytecode_is_not_run_either(tmp_path: Path) -> None:
    (tmp_path / "mine" / "inner").mkdir(parents=True)
    file(tmp_path, "from .inner.part import Mine", "mine/__init__.py")
    bytecode(tmp_path / "mine" / "inner" / "part.py", FAULT)
    load_plugin(tmp_path / "mine")
    assert load("quickstart", ["faults=[{fault: mine}]", "participation.deadline_s=1"]).plugins


def test_a_folder_that_was_refused_is_loaded_anew_with_all_of_its_modules(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    file(tmp_path, FAULT + "x = unknown", "mine/part.py")
    file(tmp_path, "from .inner import x\nfrom .part import Mine", "mine/__init__.py")
    file(tmp_path, "x = 1", "mine/inner.py")
    with pytest.raises(ScenarioError, match="name 'unknown' is not defined"):
        load_plugin(tmp_path / "mine")
    file(tmp_path, "x = 2", "mine/inner.py")
    file(tmp_path, FAULT, "mine/part.py")
    load_plugin(tmp_path / "mine")
    assert PLUGINS["mine"].module is not None and PLUGINS["mine"].module.x == 2


@pytest.mark.slow
def test_a_law_is_a_word_or_a_mapping_and_is_kept_as_short_as_it_can_be(tmp_path: Path) -> None:
    assert load("quickstart").resolved()["algorithm"]["directions"] == "gaussian"
    load_plugin(SIGNS)
    word = load("quickstart", ["algorithm.directions=sparse-signs"])
    dense = load("quickstart", ["algorithm.directions={law: sparse-signs, density: 0.5}"])
    assert word != dense and word.plugins == dense.plugins == {"signs": PLUGINS["signs"].digest}
    for what in (word, dense):
        assert validate(what.resolved(), "again") == what
    load_plugin(file(tmp_path, LAWS))
    for settings, sentence in (
        ("algorithm.directions=sparse", 'algorithm.directions.law: "sparse" is not known; did you mean sparse-signs?'),
        ("algorithm.directions={law: sparse-signs, density: 0}", "density: 0 is not accepted; expected more than 0"),
        ("algorithm.directions=short", "the quantiles of short are 32,768 finite numbers, and not (10,)"),
        ("algorithm.directions=bad", "the quantiles of bad cannot be computed (ZeroDivisionError: "),
        (
            "algorithm={name: mezo, arithmetic: integer, directions: {law: sparse-signs, density: 0.01}}",
            "directions: sparse-signs reaches 10, and arithmetic: integer needs less than 8",
        ),
    ):
        with pytest.raises(ScenarioError) as raised:
            load("quickstart", [settings])
        assert sentence in str(raised.value) and len(raised.value.problems) == 1


LAWS = """
from typing import Literal
from seedbus.plugin import Law

class Short(Law):
    law: Literal["short"] = "short"
    def quantiles(self, probabilities):
        return probabilities[:10]

class Bad(Law):
    law: Literal["bad"] = "bad"
    def quantiles(self, probabilities):
        return probabilities / (1 // 0)
"""

HEAD = "from typing import Literal\nfrom seedbus.plugin import *\n"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("absent.py", "there is no such file; expected a Python file, or a folder with an __init__.py"),
        ("text.txt", "it is not Python; expected a Python file, or a folder with an __init__.py"),
        ("3rd.py", "'3rd' cannot name a plug-in; expected a letter, then letters, digits, _ and -"),
    ],
)
def test_a_path_that_is_no_plug_in_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    if name != "absent.py":
        file(tmp_path, "", name)
    with pytest.raises(ScenarioError) as raised:
        load_plugin(tmp_path / name)
    assert raised.value.problems == [sentence]


def test_a_path_that_is_too_long_is_no_plug_in() -> None:
    with pytest.raises(ScenarioError, match="there is no such file; expected a Python file, or a folder with"):
        load_plugin(f"{'x' * 300}.py")


@pytest.mark.slow
def test_a_plug_in_may_be_a_folder_whose_every_file_counts_and_is_loaded_once(tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    file(folder, "from .inner import Mine", "__init__.py")
    inner = HEAD + 'class Mine(ScalarOnly):\n    """Mine."""\n    name: Literal["mine"] = "mine"'
    file(folder, inner, "inner.py")
    load_plugin(folder)
    load_plugin(folder)
    digest = PLUGINS["whole"].digest
    assert load("quickstart", ["algorithm=mine"]).plugins == {"whole": digest}
    other = tmp_path / "other"
    file(other, "", "__init__.py")
    with pytest.raises(ScenarioError, match="defines nothing"):
        load_plugin(other)
    with pytest.raises(ScenarioError, match="another plug-in has the name whole"):
        (tmp_path / "b").mkdir()
        load_plugin(file(tmp_path / "b", "x = 1", "whole.py"))
    forget()
    file(folder, inner + "\n", "inner.py")
    load_plugin(folder)
    assert PLUGINS["whole"].digest != digest


def test_a_program_loads_an_installed_plug_in_by_the_name_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file(
        tmp_path,
        HEAD + 'class Mine(ScalarOnly):\n    """Mine."""\n    name: Literal["mine"] = "mine"',
        "installed_one.py",
    )
    load_module("installed_one")
    load_module("installed_one")
    assert load("quickstart", ["algorithm=mine"]).plugins == {"installed_one": PLUGINS["installed_one"].digest}
    with pytest.raises(ScenarioError, match=r"the module installed_other: .*No module named 'installed_other'"):
        load_module("installed_other")


def test_a_class_of_a_notebook_is_known_once_registered_and_may_be_defined_again() -> None:
    def cell(rate: float) -> type[Any]:
        @register
        class Mine(ScalarOnly):
            """Mine."""

            name: Literal["mine"] = "mine"
            learning_rate: float = rate

        return Mine

    for rate in (0.5, 0.25):
        mine = cell(rate)
        what = load("quickstart", ["algorithm=mine"])
        algorithm: Any = what.algorithm
        assert type(algorithm) is mine and algorithm.learning_rate == rate and list(what.plugins) == ["Mine"]
    with pytest.raises(ScenarioError, match="the class Other: the algorithm mine clashes with that of Mine"):

        @register
        class Other(ScalarOnly):
            """Other."""

            name: Literal["mine"] = "mine"
