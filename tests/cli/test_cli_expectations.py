"""The command line for scenarios with `expect:`: exit codes, `check`, and `report`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import Command, CommandResult

from seedbus.scenarios.errors import Exit


@pytest.mark.slow
def test_a_run_that_misses_what_is_expected_exits_8_and_shows_what_it_found(seedbus: Command) -> None:
    met, unmet = "expect.rounds.at_least=5", "expect.gap.at_least=1e9"
    assert seedbus("run", "small.yaml", "-q", "--out", "met", "--set", met).code == Exit.OK
    said = seedbus("run", "small.yaml", "-q", "--out", "run", "--set", met, "--set", unmet, "--format", "json")
    found = json.loads(said.out)["expectations"]
    assert said.code == Exit.MISSED and {name: each["is_met"] for name, each in found.items()} == {
        "rounds": True,
        "gap": False,
    }
    gap = f"gap is {found['gap']['found']:,.6g}, expected ≥ 1,000,000,000"
    missed = f"seedbus: the run missed what its scenario expects: {gap}\n"
    assert said.err == missed
    shown = seedbus("report", "run")
    assert shown.code == Exit.OK and "✓ rounds" in shown.out and "✗ gap" in shown.out
    assert seedbus("run", "--resume", "run", "-q") == CommandResult(Exit.MISSED, shown.out, missed)
    assert seedbus("run", "small.yaml", "--resume", "run", "-q", "--set", met).code == Exit.OK
    assert "✗" not in seedbus("report", "run").out


def test_report_writes_the_plots_again_and_does_without_where_it_cannot(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = seedbus("run", "small.yaml", "-q", "--out", "run")
    page = Path("run/report.html")
    first = page.read_bytes()
    page.unlink()
    assert seedbus("report", "run") == ran and page.read_bytes() == first
    page.unlink()
    page.mkdir()  # makes the page impossible to write, even for root
    said = seedbus("report", "run")
    assert (said.code, said.out) == (Exit.OK, ran.out)
    assert re.fullmatch(r"seedbus: note: run/report\.html cannot be written \(.+\)\n", said.err)
