"""What an analysis has found is kept beside the run and shown in its report, whoever writes that again."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from commands import Command
from pages import allowed, own, plots
from worlds import go, scenario

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.findings import ANALYSIS, Finding, Plot, keep, kept, markdown
from seedbus.scenarios.reporting.looks import Line
from seedbus.scenarios.reporting.page import write_page
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.studies.analysis.analyse import analyse


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_an_analysis_stays_in_the_report_however_often_it_is_written_again(tmp_path: Path, seedbus: Command) -> None:
    folder, what = tmp_path / "run", scenario(stop={"rounds": 8})
    plain = page_of(go(folder, what).folder)
    (bytes_by_lag,) = analyse(folder, only=["break-even"])
    (curvature,) = analyse(folder, only=["spectrum"])
    assert [each.title for each in kept(folder)] == [curvature.title, bytes_by_lag.title], "one more, none less"
    analysed = page_of(folder)
    assert analysed.startswith(plain.partition("<noscript>")[0])
    assert analysed.count("<figure>") == plain.count("<figure>") + 2 + 1
    for finding in (bytes_by_lag, curvature):
        assert all(f"<td>{cell}</td>" in analysed for row in finding.rows for cell in row)

    (folder / "report.html").unlink()
    assert seedbus("report", folder).code == 0 and page_of(folder) == analysed
    (folder / "results.json").unlink()
    run(what, folder, resume=True)
    assert page_of(folder).count("<figure>") == analysed.count("<figure>")


def test_findings_are_data_that_come_back_as_they_were_and_are_escaped(tmp_path: Path) -> None:
    odd = "<script>alert('&')</script>"
    curve = Plot.of_lines(odd, odd, odd, [Line(odd, [1, 2, 3], [0.1, float("nan"), 1e300])], is_log=True)
    found = [Finding(odd, odd, [odd], [[odd]], [odd], [curve, Plot("t", "x", "y", bars={odd: 1.5})], {"n": [1, None]})]
    results = go(tmp_path / "run", scenario(stop={"rounds": 2}))
    keep(results.folder, found)
    assert kept(results.folder) == found
    write_page(Results.read(results.folder))
    page = page_of(results.folder)
    assert "<script>alert" not in page and own(page).count("&lt;script&gt;") > 6 and allowed(page) in page
    titles = [title for title in plots(page) if "alert" in title]
    assert [html.unescape(title) for title in titles] == [odd]
    (line,) = plots(page)[titles[0]]["data"]
    assert line["marker"]["size"] == [8, 0, 8], "each point stands alone"


UNEVEN = (
    '[{"name": "a", "title": "b", "plots": [{"title": "", "x_name": "", "y_name": "", "lines": [["c", [1, 2], [1]]]}]}]'
)


def test_findings_in_markdown_are_safe_to_print() -> None:
    odd = "a\x1b[31m\u202e\\|<b>"
    printed = markdown([Finding("spectrum", odd, [odd], [[odd]], [odd])])
    assert printed.replace("\n", "").isprintable() and printed.count(r"a \[31m \\\|&lt;b>") == 4


@pytest.mark.parametrize("text", ["", "[{}]", '[{"name": 1, "title": "a"}]', '{"name": "a", "title": "b"}', UNEVEN])
def test_a_damaged_analysis_is_one_sentence(text: str, tmp_path: Path, seedbus: Command) -> None:
    folder = go(tmp_path / "run", scenario(stop={"rounds": 2})).folder
    (folder / ANALYSIS).write_text(text)
    for command in ("report", "analyse"):
        result = seedbus(command, folder)
        assert result.code == Exit.FOLDER and result.err.count("\n") == 1
        assert f"delete it, and `seedbus analyse {folder}` measures again" in result.err
