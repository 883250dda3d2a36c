"""`seedbus analyse` from the command line, on runs of real digits."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from worlds import HISO, go, scenario

from seedbus.models.device import VARIABLE
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.findings import Finding

FEW = ("samples=60", "exact_up_to=0", "probes=2", "steps=6", "diagonal_probes=2", "nulls=3")
LITTLE = tuple(part for each in FEW for part in ("--set", each))
DIGITS: dict[str, Any] = {"task": {"name": "digits", "model": "cnn"}, "stop": {"rounds": 6}, "verify": False}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of six rounds."""
    return go(tmp_path_factory.mktemp("small") / "run", scenario(stop={"rounds": 6})).folder


@pytest.mark.slow
def test_a_run_of_digits_is_analysed_in_tables_numbers_and_a_page(tmp_path: Path, seedbus: Command) -> None:
    folder = go(tmp_path / "run", scenario(algorithm=HISO, **DIGITS)).folder
    before = (folder / "report.html").read_text(encoding="utf-8")
    shown = seedbus("analyse", folder, "--at", "2,6", *LITTLE)
    assert shown.code == 0, shown.err
    for words in ("d = 1,898", "2 probes × 6 steps", "ζ (eq. 16)", "correlation with the diagonal", "CKA 3"):
        assert words in shown.out
    page = (folder / "report.html").read_text(encoding="utf-8")
    added = page.removeprefix(before.partition("<noscript>")[0]).partition("<noscript>")[0]
    assert added.count("<figure>") == 2 + 2 + 2 + 1 + 2 + 1 and "nan" not in re.sub("[a-z]+nan|nan[a-z]+", "", added)
    for words in ("ζ (eq. 16)", "correlation with the diagonal", "CKA 3", "A snapshot takes"):
        assert words in added

    facts = json.loads(seedbus("analyse", folder, "--at", "2,6", *LITTLE, "--format", "json").out)
    assert list(facts) == ["spectrum", "whitening", "hessian", "divergence", "fairness", "break-even"]
    assert [each["round"] for each in facts["divergence"]["rounds"]] == [2, 6]
    for each in facts["divergence"]["rounds"]:
        assert each["divergence"] > 0 and all(0 < similar <= 1 + 1e-9 for similar in each["cka"])
    for each in facts["spectrum"]["rounds"]:
        assert each["effective_rank"]["value"] < 1898 and each["products"] == 2 * 6 + 2

    table = seedbus("analyse", folder, "--only", "break-even", "--format", "markdown").out
    assert table.startswith("### Replay or pull") and "| missed commits | bytes |" in table


@pytest.mark.slow
def test_what_a_dense_run_does_not_have_is_said(tmp_path: Path, seedbus: Command) -> None:
    fedavg = {"name": "fedavg", "local_steps": 2}
    folder = go(tmp_path / "run", scenario(algorithm=fedavg, **DIGITS)).folder
    facts = json.loads(
        seedbus("analyse", folder, "--format", "json", *LITTLE, "--only", "hessian", "--only", "break-even",
                "--only", "divergence").out
    )  # fmt: skip
    assert facts["hessian"] == {"nothing": "fedavg has no H"} and "is dense" in facts["break-even"]["nothing"]
    assert facts["divergence"]["rounds"][0]["cosine"] > 0


def test_a_folder_without_a_run_is_one_sentence(tmp_path: Path, seedbus: Command) -> None:
    result = seedbus("analyse", tmp_path)
    assert result.code == Exit.FOLDER and "there is no run here" in result.err


def test_facts_that_are_no_numbers_are_null_in_json(seedbus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the eigenvalues of a model that has diverged."""
    found = Finding("spectrum", "a spectrum", facts={"rounds": [{"values": [math.nan, math.inf, 1.0]}]})
    monkeypatch.setattr("seedbus.studies.analysis.analyse.analyse", lambda *_, **__: [found])
    said = seedbus("analyse", "run", "--format", "json")
    assert said.code == Exit.OK and said.out == '{"spectrum": {"rounds": [{"values": [null, null, 1.0]}]}}\n'


def test_several_devices_are_refused_by_the_name_of_what_gives_them(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "cpu,cpu")
    said = seedbus("analyse", "run")
    expected = "found cpu,cpu; expected 1 at most, because one process computes"
    assert (said.code, said.err) == (Exit.DATA, f"seedbus: {VARIABLE}: {expected}\n")
