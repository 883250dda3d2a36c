"""`report.html`: one self-contained page with all figures."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as Xml
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import go, lossy, scenario

from seedbus.scenarios.reporting.axes import HEIGHT, WIDTH, ticks
from seedbus.scenarios.reporting.figures import Line, Marks, bars, lines
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.round_table import Pairs
from seedbus.scenarios.reporting.timeline import fates, timeline

SVG = ' xmlns="http://www.w3.org/2000/svg"'
AXES = {
    "Loss over rounds": ("rounds", "loss"),
    "Loss over bytes": ("plans and reports sent, all clients (kB)", "loss"),
    "Gap over rounds": ("rounds", "gap"),
    "Gap over bytes": ("plans and reports sent, all clients (kB)", "gap"),
    "Which clients took part": ("rounds", "client"),
    "How long rounds took": ("round", "seconds (simulated)"),
    "Participation per client": ("clients, each line with its most active first", "rounds"),
    "Lag": ("commits that a client had missed when it was asked", "times"),
    "Bytes by kind of message": ("kind of message", "headers and payloads (kB)"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return go(tmp_path_factory.mktemp("page") / "run", lossy(stop={"rounds": 30}, expect={"gap": {"at_least": 1e9}}))


def text_of(results: Results) -> str:
    return (results.folder / "report.html").read_text(encoding="utf-8")


def figures(html: str) -> dict[str, Xml.Element]:
    """Return the parsed plots of a page, by title."""
    elements = [Xml.fromstring(text) for text in re.findall(r"<figure>.*?</figure>", html.replace(SVG, ""), re.DOTALL)]
    return {str(figure.findtext("figcaption")): figure for figure in elements}


def axes(figure: Xml.Element) -> tuple[str, str]:
    named = [each for each in figure.iter("text") if "name" in each.attrib["class"]]
    across = [each.text for each in named if "transform" not in each.attrib]
    up = [each.text for each in named if "transform" in each.attrib]
    assert len(across) == len(up) == 1
    return str(across[0]), str(up[0])


def test_every_figure_has_its_axes_with_units_and_ticks(results: Results) -> None:
    plots = figures(text_of(results))
    assert {title: axes(figure) for title, figure in plots.items()} == AXES
    for figure in plots.values():
        assert sum(each.attrib["class"] == "tick" for each in figure.iter("text")) >= 3
        assert any(figure.iter(tag) for tag in ("polyline", "rect", "circle"))


def test_everything_lies_on_the_paper(results: Results) -> None:
    for figure in figures(text_of(results)).values():
        for line in figure.iter("polyline"):
            points = np.array([pair.split(",") for pair in line.attrib["points"].split()], float)
            assert (points >= 0).all() and (points <= (WIDTH, HEIGHT)).all()
        for bar in figure.iter("rect"):
            assert float(bar.attrib["height"]) >= 0 and 0 <= float(bar.attrib["x"]) <= WIDTH


def test_the_page_is_well_formed_loads_nothing_and_holds_the_closing_table(results: Results) -> None:
    html, open_tags = text_of(results), []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: Any) -> None:
            assert not {"src", "href"} & dict(attributes).keys() and tag not in ("script", "link", "img")
            if tag != "meta":
                open_tags.append(tag)

        def handle_startendtag(self, tag: str, attributes: Any) -> None:
            pass

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Reader().feed(html)
    assert not open_tags and "http" not in html.replace(SVG, "") and "url(" not in html
    assert results.digest in html and "✗ gap" in html and "lost to stragglers" in html


def test_the_figures_hold_the_runs_numbers(results: Results) -> None:
    plots = figures(text_of(results))
    heights = {str(bar.findtext("title")): bar for bar in plots["Lag"].iter("rect")}
    assert set(heights) == {f"{name}: {count:,}" for name, count in results.summary["lag"]["histogram"].items()}
    line = next(plots["Gap over rounds"].iter("polyline")).attrib["points"]
    points = np.array([pair.split(",") for pair in line.split()], float)
    gaps = results.metrics["gap"].to_numpy()
    assert len(points) == len(gaps)
    assert np.corrcoef(points[:, 1], gaps)[0, 1] == pytest.approx(-1, abs=1e-4), "up on the paper is down in pixels"


def test_what_was_named_oddly_is_escaped(tmp_path: Path) -> None:
    import json

    from seedbus.scenarios.reporting.page import write_page

    results = go(tmp_path / "run", scenario(stop={"rounds": 2}))
    odd = results.summary | {"reason": "<script>alert('&')</script>"}
    write_page(Results(results.folder, json.loads(json.dumps(odd))))
    assert "<script" not in text_of(results) and "&lt;script&gt;" in text_of(results)


def test_what_is_not_finite_leaves_a_gap() -> None:
    y = [1.0, 2.0, float("nan"), 3.0, float("inf"), 4.0, 5.0]
    figure = figures(lines("t", "x", "y", [Line("a", range(7), y)]))["t"]
    assert [line.attrib["points"].count(",") for line in figure.iter("polyline")] == [2, 2]
    assert len(list(figure.iter("circle"))) == 1  # a circle marks an isolated point, which a line would not show


@pytest.mark.parametrize("values", [[], [float("nan")], [0.0], [7.0, 7.0], [-3.0, -3.0], [1e-9, 2e-9], [1e300, -1e300]])
def test_there_is_a_plot_of_whatever_there_is(values: list[float]) -> None:
    html = lines("t", "x", "y", [Line("a", range(len(values)), values)])
    assert "nan" not in html and "inf" not in html
    assert axes(figures(html)["t"]) == ("x", "y")
    bars("t", "x", "y", {str(number): abs(value) for number, value in enumerate(values) if np.isfinite(value)})


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12))
def test_ticks_are_few_round_and_cover_what_is_shown(low: float, width: float) -> None:
    plots = ticks(low, low + width)
    assert 2 <= len(plots) <= 8
    if low + width > low:
        assert plots[0] <= low + 1e-6 * (width + abs(low)) and plots[-1] >= low + width - 1e-6 * (width + abs(low))


def test_who_took_part_is_drawn_cell_by_cell_and_stays_small_with_many_clients(results: Results) -> None:
    history, arrived = results.history, results.arrived
    what = fates(history, arrived)
    asked, reported = (
        set(zip(each.round.tolist(), each.client.tolist(), strict=True)) for each in (history.asked, history.reported)
    )
    assert np.bincount(what, minlength=3)[2] == len(asked & reported) and 0 < len(reported) < len(asked)
    drawn = figures(timeline(history, arrived, Marks()).replace(SVG, ""))["Which clients took part"]
    lengths = [int(run) for path in drawn.iter("path") for run in re.findall(r"h(\d+)", path.attrib["d"])]
    assert sum(lengths) == len(asked), "8 clients and 30 rounds: every pair is a cell"
    many = 10_000
    pairs = Pairs(np.repeat(np.arange(500), many // 10), np.random.default_rng(1).integers(0, many, 50 * many))
    large = dataclasses.replace(
        history,
        clients=many,
        opened_ns=np.arange(500),
        asked=pairs,
        reported=Pairs(pairs.round[::2], pairs.client[::2]),
    )
    assert len(timeline(large, arrived, Marks(np.arange(500) + 0.5))) < 500_000
