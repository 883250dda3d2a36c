"""The pages in a browser, at the widths of a desk and of a phone, light and dark: they fit, and nothing fails."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, DESKTOP, MISSING, PHONE, Browser, browser
from commands import Command
from processes import kill, seedbus
from worlds import DECOMFL, go, lossy, scenario

from seedbus.scenarios.reporting.findings import Finding, Plot, keep
from seedbus.scenarios.reporting.looks import COLOURS
from seedbus.scenarios.reporting.page import write_page
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.schema.yaml_text import dump

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

OVERPRINTED = """
[...document.querySelectorAll('figure')].flatMap(figure => {
  const axes = '[class$="tick"] text, text[class$="title"], .annotation-text, .legend button';
  const seen = [...figure.querySelectorAll(axes)];
  const texts = seen.map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([name, a], index) => texts.slice(index + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([other]) => name + ' on ' + other));
})"""
DRAWN = """
[...document.querySelectorAll('.plot')].every(
  each => each.querySelectorAll('.main-svg [class^="x"][class$="title"]').length === 1)"""
CUT = """
[...document.querySelectorAll('.plot')].flatMap(plot => {
  const whole = plot.querySelector('.main-svg').getBoundingClientRect();
  return [...plot.querySelectorAll('text[class$="title"]')].filter(text => {
    const {left, right, top, bottom} = text.getBoundingClientRect();
    return left < whole.left || right > whole.right || top < whole.top || bottom > whole.bottom;
  }).map(text => text.textContent);
})"""
FIRST_PLOT_ENDS = "document.querySelector('figure .nsewdrag').getBoundingClientRect().bottom + scrollY"
BUTTONS = {"Download plot", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"}
COMPARED = {"Loss over rounds", "Loss over bytes"}
RUN = COMPARED | {"Which clients took part", "How long rounds took", "Where the time went", "Lag per client", "Lag"}
FIRST = "document.querySelector('.plot')"


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
            assert tab.evaluate(DRAWN) and tab.evaluate(OVERPRINTED) == [] and tab.evaluate(CUT) == []
            assert BUTTONS == set(
                tab.evaluate("[...document.querySelectorAll('.modebar-btn')].map(each => each.dataset.title)")
            ), "none of them sends data"
            papers.add((is_dark, tab.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert len(papers) == 2 and len({colour for _, colour in papers}) == 2


def test_the_pages_of_runs_and_of_their_comparison_fit(tab: Browser, tmp_path: Path, seedbus: Command) -> None:
    outage = {"fault": "partition", "fraction": 0.5, "at_round": 10, "for_rounds": 5}
    for name, seed in (("first", 1), ("second", 2)):
        go(tmp_path / name, lossy(name=name, seed=seed, stop={"rounds": 120}, faults=[outage]))
    assert seedbus("compare", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "both.html").code == 0
    fits_everywhere(tab, (tmp_path / "first" / "report.html").as_uri(), RUN)
    assert tab.evaluate(FIRST_PLOT_ENDS) < PHONE[1], "the first screen of a phone has a whole plot"
    shadows = "getComputedStyle(document.querySelector('.table:last-of-type')).backgroundAttachment"
    assert tab.evaluate(shadows).count("local") == 2, "a table that scrolls shows that it does"
    assert tab.evaluate("document.body.innerText").count("in force: partition") >= 3
    fits_everywhere(tab, (tmp_path / "both.html").as_uri(), COMPARED)


def test_a_plot_can_be_read_zoomed_and_printed_by_mouse_and_by_keyboard(tab: Browser, tmp_path: Path) -> None:
    results = go(tmp_path / "run", lossy(stop={"rounds": 20}))
    tab.show((results.folder / "report.html").as_uri(), DESKTOP)
    losses = [f"{each:.6g}" for each in results.metrics["loss"]]
    tab.evaluate(f"{FIRST}.scrollIntoView()")
    place = f"{FIRST}.querySelector('.nsewdrag').getBoundingClientRect()"
    tab.move_to(*tab.evaluate(f"(place => [place.left + place.width / 2, place.top + place.height / 2])({place})"))
    tab.wait_for(f"{FIRST}.querySelector('.hoverlayer').textContent.includes({losses[2]!r})")

    tab.evaluate(f"{FIRST}.focus()")
    assert "Loss over rounds" in tab.evaluate("document.activeElement.ariaLabel")
    tab.press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    told = tab.evaluate(f"{FIRST}.parentElement.querySelector('.told').textContent")
    assert re.fullmatch(rf"loss: 5, {results.metrics['loss'][1]:.8g}", told)
    span = f"{FIRST}._fullLayout.xaxis.range"
    assert tab.evaluate(span) == [0, 20]
    tab.press("+")
    assert tab.evaluate(span) == [2.5, 12.5], "around what was told"
    tab.press("0")
    assert tab.evaluate(span) == [0, 20]

    entry = f"{FIRST}.parentElement.querySelector('.legend button')"
    tab.evaluate(f"{entry}.focus()")
    tab.press("Enter")
    tab.wait_for(f"{entry}.ariaPressed === 'false' && {FIRST}.data[0].visible === 'legendonly'")
    assert tab.evaluate(f"document.activeElement === {entry}"), "the next press shows it again"
    tab.press("Enter")
    tab.wait_for(f"{entry}.ariaPressed === 'true' && {FIRST}.data[0].visible === true")

    tab.show((results.folder / "report.html").as_uri(), DESKTOP, is_dark=True)
    dark = tab.evaluate(f"{FIRST}.data[0].line.color")
    given = json.dumps({"color": [COLOURS[0], "red"], "name": COLOURS[0], "text": f"{COLOURS[0]} "})
    read = tab.evaluate(f"specification({{querySelector: () => ({{textContent: {given!r}}})}}, false)")
    assert read == {"color": [dark, "red"], "name": COLOURS[0], "text": f"{COLOURS[0]} "}, "names are no colours"
    tab.evaluate(
        "addEventListener('beforeprint', () => { globalThis.printed = [...document.querySelectorAll('.plot')].map("
        "each => [each.data[0].line?.color ?? '', each._fullLayout.width]); })"
    )
    tab.printed(tmp_path / "page.pdf")
    (light, _), *_ = printed = tab.evaluate("printed")
    assert light == COLOURS[0] != dark and {width for _, width in printed} == {620}
    assert tab.evaluate(f"{FIRST}.data[0].line.color") == dark and not tab.problems
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


def test_what_a_peer_says_is_shown_and_never_run(tab: Browser, tmp_path: Path) -> None:
    results = go(tmp_path / "run", scenario(stop={"rounds": 2}))
    evil = "</script><script>evil = 1</script><img src=x onerror='evil = 2'>"
    keep(results.folder, [Finding("dark", evil, plots=[Plot(evil, "x", "y", bars={evil: 1.0})])])
    traffic = results.summary["traffic"]
    kinds = traffic["by_kind"] | {evil: {"bytes": 10**6, "catchup_bytes": 0}}
    write_page(Results(results.folder, results.summary | {"reason": evil, "traffic": traffic | {"by_kind": kinds}}))
    page = results.folder / "report.html"
    tab.show(page.as_uri(), DESKTOP)
    assert tab.evaluate("typeof evil") == "undefined" and not tab.problems
    assert evil in tab.evaluate("document.querySelector('h1').textContent")
    ticks = tab.evaluate("[...document.querySelectorAll('.xtick text')].map(each => each.textContent)")
    assert any("<img src=x" in each for each in ticks)
    last = "[...document.querySelectorAll('.plot')].at(-1)"
    tab.evaluate(f"{last}.focus()")
    tab.press("ArrowRight")
    assert tab.evaluate(f"{last}.parentElement.querySelector('.told').textContent") == f"{evil}, 1"
    tab.show(page.as_uri(), DESKTOP, is_dark=True)
    assert tab.evaluate(DRAWN) and not tab.problems
    page.write_text(page.read_text().replace("<h1>", "<h1><script>evil = 3</script><img src=x onerror='evil = 4'>"))
    tab.show(page.as_uri(), DESKTOP)
    assert tab.evaluate("typeof evil") == "undefined" and tab.problems, "the policy of the page refuses it"


def test_the_page_of_ten_thousand_clients_is_small_and_drawn(tab: Browser, tmp_path: Path) -> None:
    away = {"fault": "crash", "fraction": 0.2, "at_round": 5, "for_rounds": 10}
    slow = {"fault": "straggler", "fraction": 0.1, "factor": 5}
    what = lossy(
        name="many",
        algorithm=DECOMFL | {"perturbations": 1},
        task={"name": "quadratic", "dimension": 10},
        participation={"clients": 10_000, "cohort": 500, "deadline_s": 0.5},
        faults=[away, slow, {"fault": "drop", "probability": 0.05}],
        compute={"evaluation": 0.01},
        stop={"rounds": 12},
        verify=False,
    )
    results = go(tmp_path / "run", what)
    page = results.folder / "report.html"
    assert page.stat().st_size < 8_000_000
    fits_everywhere(tab, page.as_uri(), RUN)
    seen = tab.evaluate("document.body.innerText")
    assert all(f"{name} " in seen for name in ("took part", "late", "dropped", "absent"))
    assert "Faults and their effect" in seen and "The clients that lagged most" in seen


def test_the_page_of_a_study_fits(tab: Browser, tmp_path: Path, seedbus: Command) -> None:
    (tmp_path / "base.yaml").write_text(dump(lossy(stop={"rounds": 20}).resolved()))
    (tmp_path / "small.yaml").write_text(
        "base: base.yaml\ngrid: {algorithm.learning_rate: [0.001, 0.002]}\nseeds: [1, 2]\n"
    )
    assert seedbus("study", tmp_path / "small.yaml").code == 0
    page = Path("studies/small/report.html").absolute()
    fits_everywhere(tab, page.as_uri(), COMPARED | {"Loss over simulated time"})


def test_panels_fit_zoom_together_and_have_one_legend(tab: Browser, tmp_path: Path, seedbus: Command) -> None:
    (tmp_path / "base.yaml").write_text(dump(lossy(stop={"rounds": 20}).resolved()))
    conditions = {"as it is": [], "five <b> more": ["participation.cohort=8"], "late": ["participation.deadline_s=2"]}
    study = {"base": "base.yaml", "variants": {"fast": ["algorithm.learning_rate=0.02"], "slow": []}, "seeds": [1]}
    (tmp_path / "panels.yaml").write_text(dump(study | {"conditions": conditions | {"calm": ["faults=[]"]}}))
    assert seedbus("study", tmp_path / "panels.yaml").code == 0
    page = Path("studies/panels/report.html").absolute()
    fits_everywhere(tab, page.as_uri(), COMPARED | {"Loss over simulated time"})
    tab.show(page.as_uri(), DESKTOP)
    ranges = f"['x', 'x3', 'x4', 'x5'].map(each => {FIRST}._fullLayout[each.replace('x', 'xaxis')].range)"
    heights = f"['y', 'y3', 'y4', 'y5'].map(each => {FIRST}._fullLayout[each.replace('y', 'yaxis')].range)"
    assert tab.evaluate(ranges) == [[0, 20]] * 4
    (low, high), *others = tab.evaluate(heights)
    assert low < high and others == [[low, high]] * 3
    drawn = f"[...{FIRST}.querySelectorAll('.scatterlayer .js-line')].map(each => each.getBBox().height > 0)"
    assert tab.evaluate(drawn) == [True] * (2 * 2 * 4), "two lines with bands in each panel"
    assert "five <b> more" in tab.evaluate(f"{FIRST}.textContent")
    tab.evaluate(f"{FIRST}.focus()")
    tab.press("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight")
    assert tab.evaluate(f"{FIRST}.parentElement.querySelector('.told').textContent").startswith(
        "five <b> more, fast: 10, "
    )
    tab.press("+")
    zoomed = tab.evaluate(ranges)
    assert zoomed == [zoomed[0]] * 4 != [[0, 20]] * 4
    tab.press("0")
    assert tab.evaluate(ranges) == [[0, 20]] * 4 and tab.evaluate(heights) == [[low, high]] * 4
    entries = f"{FIRST}.parentElement.querySelectorAll('.legend button')"
    assert tab.evaluate(f"[...{entries}].map(each => each.textContent)") == ["fast", "slow"]
    tab.evaluate(f"{entries}[0].click()")
    hidden = f"{FIRST}.data.filter(each => each.visible === 'legendonly').map(each => each.name)"
    tab.wait_for(f"{hidden}.length === 8")
    assert set(tab.evaluate(hidden)) == {"fast"} and not tab.problems


def test_the_page_of_a_run_that_goes_on_fits(tab: Browser, tmp_path: Path) -> None:
    paced = {"clock": "wall", "network": {"latency": 0.02}}  # so that the run leaves the processor to the browser
    (tmp_path / "long.yaml").write_text(dump(scenario(stop={"rounds": 10**6}, **paced).resolved()))
    process = seedbus("run", "long.yaml", "--live", "0", cwd=tmp_path)
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.findall(r"live page is at (\S+)", line)))
        fits_everywhere(tab, url, {"Loss over rounds"}, f"{FIRST}?._fullLayout !== undefined")
        tab.evaluate(f"Plotly.relayout({FIRST}, {{'xaxis.range': [1, 3]}}); globalThis.before = {FIRST}; 0")
        rounds = "document.body.innerText.match(/([0-9,]+) of 1,000,000/)?.[1]"
        now = tab.evaluate(rounds)
        tab.wait_for(f"{rounds} !== {now!r}")
        assert tab.evaluate(f"[{FIRST} === before, {FIRST}._fullLayout.xaxis.range]") == [True, [1, 3]], (
            "zoomed as it was"
        )
        assert not tab.problems
    finally:
        kill(process.pid, 9)
        process.communicate()
