"""The programs of examples/: each runs away from the checkout and prints what examples/README.md shows."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from warm_command import warm

from seedbus.plugin import check

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SHOWN = (EXAMPLES / "README.md").read_text(encoding="utf-8")
ANSWERS = dict(re.findall(r"^\| [^|]+\? \| `([^`|]+)` \| [^|]*\*\*([^*|]+)\*\*[^|]* \|$", SHOWN, re.MULTILINE))
"""File → the figure that answers its question."""

each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)


def test_the_page_shows_every_program_and_each_is_short() -> None:
    assert PROGRAMS and NOTEBOOKS
    for path in [*PROGRAMS, *NOTEBOOKS]:
        assert path.name in SHOWN
    assert all(program.read_text(encoding="utf-8").count("\n") <= 80 for program in PROGRAMS)


@pytest.mark.slow
@each_program
def test_a_program_prints_what_the_page_shows(tmp_path: Path, program: Path) -> None:
    """But for the figures, which another processor or version of torch may change."""
    if program.stem == "frozen_vit":
        for package in ("PIL", "datasets", "transformers"):
            pytest.importorskip(package, reason="the example needs the extra hub")
    answer = subprocess.run([warm() / "seedbus", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    shown = re.search(rf"\$ python examples/{program.name}\n(.*?)```", SHOWN, re.DOTALL)
    assert shown is not None and figureless(answer.stdout) == figureless(shown[1])
    check_answer(program.name, shown[1], answer.stdout)


def check_answer(name: str, shown: str, printed: str) -> None:
    """Check the figure of the table's answer: as shown it is among the words, and as printed it is close to that."""
    if name not in ANSWERS:
        return
    place = shown.split().index(ANSWERS[name])
    found, wanted = (float(re.sub("[%,]", "", words[place])) for words in (printed.split(), shown.split()))
    assert found == pytest.approx(wanted, rel=0.05)


def test_the_page_answers_six_questions_each_by_a_figure_that_a_program_prints() -> None:
    assert len(ANSWERS) == 6
    for name, figure in ANSWERS.items():
        assert (EXAMPLES / name).is_file()
        shown = SHOWN.partition(f"$ python examples/{name}\n")[2].partition("```")[0]
        assert figure in shown or name.endswith(".ipynb")


def words(text: str) -> list[str]:
    return re.sub(r"[\d.,]+", "0", text).split()


@pytest.mark.slow
@each_program
@pytest.mark.usefixtures("no_plugins")
def test_a_program_that_is_a_plug_in_keeps_the_contract_of_its_kind(program: Path) -> None:
    if (
        "load_plugin" in program.read_text(encoding="utf-8") and program.stem != "rush_hour"
    ):  # the page of plug-ins does
        checked = check(program)
        assert checked and not [each for each in checked if each.problem]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_jupyter_and_prints_what_it_shows_with_finished_bars(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="Jupyter runs the notebook")
    nbformat = pytest.importorskip("nbformat", reason="nbclient brings it")
    assert ANSWERS[path.name] in path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    notebook = nbformat.read(path, 4)
    place = {"metadata": {"path": str(tmp_path)}}
    # a slow cell's text comes in pieces
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=place, coalesce_streams=True).execute()
    for cell, ran in zip(cells, notebook.cells, strict=True):
        if cell["cell_type"] == "code":
            shown = "".join(line for output in cell["outputs"] for line in output.get("text", ()))
            assert figureless("".join(output.get("text", "") for output in ran.outputs)) == figureless(shown)
            if ANSWERS[path.name] in shown.split():
                check_answer(path.name, shown, "".join(output.get("text", "") for output in ran.outputs))
            assert [kinds(output) for output in ran.outputs] == [kinds(output) for output in cell["outputs"]]
            bars = [output.data["text/html"] for output in ran.outputs if "text/html" in kinds(output)]
            assert all('<progress max="60" value="60">' in bar and " 60/60 rounds " in bar for bar in bars)


def kinds(output: Mapping[str, Any]) -> list[str]:
    return sorted(output.get("data", ()))


def figureless(text: str) -> list[str]:
    return [re.sub(r"[0-9a-f]{32}", "digest", word) for word in words(re.sub(r"[0-9a-f]{32}", "digest", text))]
