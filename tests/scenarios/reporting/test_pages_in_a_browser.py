"""The pages in a browser, at the widths of a desk and of a phone, light and dark: they fit, and nothing fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, DESKTOP, MISSING, PHONE, Browser, browser
from commands import Command
from processes import kill, seedbus
from worlds import go, lossy, scenario

from seedbus.scenarios.schema.yaml_text import dump

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

OVERPRINTED = """
[...document.querySelectorAll('figure > svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([name, a], index) => texts.slice(index + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([other]) => name + ' on ' + other));
})"""
COMPARED = {"Loss over rounds", "Loss over bytes"}
RUN = COMPARED | {"Which clients took part", "How long rounds took", "Participation per client", "Lag"}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def fits_everywhere(tab: Browser, url: str, headings: set[str], ready: str = "true") -> None:
    """Check a page at both widths, light and dark; `ready`: JavaScript that is true once all is there."""
    papers = set()
    for size in (DESKTOP, PHONE):
        for is_dark in (False, True):
            tab.show(url, size, is_dark=is_dark)
            tab.wait_for(ready)
            assert not tab.problems
            assert tab.evaluate("innerWidth") == size[0]
            assert tab.evaluate("document.documentElement.scrollWidth") <= size[0]
            assert headings <= set(tab.evaluate("[...document.querySelectorAll('figcaption')].map(e => e.textContent)"))
            assert tab.evaluate("document.querySelector('h1').textContent")
            assert tab.evaluate(OVERPRINTED) == []
            papers.add((is_dark, tab.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert len(papers) == 2 and len({colour for _, colour in papers}) == 2


def test_the_pages_of_runs_and_of_their_comparison_fit(tab: Browser, tmp_path: Path, seedbus: Command) -> None:
    outage = {"fault": "partition", "fraction": 0.5, "at_round": 10, "for_rounds": 5}
    for name, seed in (("first", 1), ("second", 2)):
        go(tmp_path / name, lossy(name=name, seed=seed, stop={"rounds": 120}, faults=[outage]))
    assert seedbus("compare", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "both.html").code == 0
    fits_everywhere(tab, (tmp_path / "first" / "report.html").as_uri(), RUN)
    assert tab.evaluate("document.body.innerText").count("in force: partition") >= 3
    fits_everywhere(tab, (tmp_path / "both.html").as_uri(), COMPARED)


def test_a_drawing_taken_out_of_the_page_keeps_its_looks(tab: Browser, tmp_path: Path) -> None:
    results = go(tmp_path / "run", lossy(stop={"rounds": 20}))
    html = (results.folder / "report.html").read_text()
    alone = tmp_path / "alone.svg"
    alone.write_text(re.findall(r"<svg xmlns.*?</svg>", html, re.DOTALL)[0])
    tab.show(alone.as_uri(), DESKTOP)
    assert not tab.problems
    style = "getComputedStyle(document.querySelector({!r})).{}"
    assert tab.evaluate(style.format(".grid", "stroke")) == "rgb(223, 227, 233)"
    assert tab.evaluate(style.format("text", "fontFamily")) == "sans-serif"
    assert tab.evaluate(style.format("text", "fill")) == "rgb(60, 70, 84)"


def test_the_page_of_a_study_fits(tab: Browser, tmp_path: Path, seedbus: Command) -> None:
    (tmp_path / "base.yaml").write_text(dump(lossy(stop={"rounds": 20}).resolved()))
    (tmp_path / "small.yaml").write_text(
        "base: base.yaml\ngrid: {algorithm.learning_rate: [0.001, 0.002]}\nseeds: [1, 2]\n"
    )
    assert seedbus("study", tmp_path / "small.yaml").code == 0
    page = Path("studies/small/report.html").absolute()
    fits_everywhere(tab, page.as_uri(), COMPARED | {"Loss over simulated time"})


def test_the_page_of_a_run_that_goes_on_fits(tab: Browser, tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(dump(scenario(stop={"rounds": 10**6}).resolved()))
    process = seedbus("run", "long.yaml", "--live", "0", cwd=tmp_path)
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.findall(r"live page is at (\S+)", line)))
        drawn = "[...document.querySelectorAll('figcaption')].some(each => each.textContent === 'Loss over rounds')"
        fits_everywhere(tab, url, {"Loss over rounds"}, drawn)
    finally:
        kill(process.pid, 9)
        process.communicate()
