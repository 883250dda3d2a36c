"""A plot of several panels has one pair of axes and one legend, wherever it is drawn."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Xml
from typing import Literal

import pytest

from seedbus.scenarios.reporting.figures import lines
from seedbus.scenarios.reporting.looks import Line, rows_of
from seedbus.scenarios.reporting.paper import file_of, lines_figure

DRAWN = [
    Line(name, [0, 10], [0, high * (1 + number)], place=number, panel=panel)
    for panel, high in (("calm", 20), ("<slow>", 2), ("far", 5), ("near", 1))
    for number, name in enumerate(("a", "b"))
]


def test_panels_stand_in_rows_of_about_equal_length() -> None:
    assert [rows_of(count) for count in (1, 2, 3, 4, 5, 7, 12)] == [
        (1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3), (4, 3),
    ]  # fmt: skip


def test_a_file_has_the_same_ticks_in_each_panel_and_a_legend_of_each_name_once() -> None:
    figure = lines_figure("rounds", "loss", DRAWN)
    ticks = [axes.get_yticks().tolist() for axes in figure.axes]
    assert len(ticks) == 4 and all(each == ticks[0] for each in ticks) and 40 in ticks[0]
    colours = [[line.get_color() for line in axes.lines] for axes in figure.axes]
    assert all(each == colours[0] for each in colours) and len(set(colours[0])) == 2
    drawn = Xml.fromstring(file_of(figure, "svg", "t"))
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [texts.count(name) for name in ("calm", "<slow>", "a", "b")] == [1, 1, 1, 1]
    assert drawn.findtext(".//{http://purl.org/dc/elements/1.1/}title") == "t"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_a_file_of_panels_is_as_wide_as_both_columns_and_the_same_bytes_each_time(form: Literal["svg", "pdf"]) -> None:
    for count, width_in in ((1, 3.25), (4, 6.75)):
        drawn = DRAWN[: 2 * count]
        content, again = (file_of(lines_figure("rounds", "loss", drawn), form) for _ in range(2))
        assert content == again
        width = {"svg": f'viewBox="0 0 {72 * width_in:g} ', "pdf": f"/MediaBox [ 0 0 {72 * width_in:g} "}
        assert width[form].encode() in content


def test_a_page_gives_each_panel_its_axes_and_all_the_same_range() -> None:
    html = lines("t", "rounds", "loss", DRAWN)
    found = re.search(r"<script[^>]*>(.*)</script>", html)
    assert found is not None and html.startswith('<figure class="wide">')
    spec = json.loads(found[1])
    axes = [(each.get("xaxis"), each.get("yaxis"), each["name"]) for each in spec["data"]]
    assert axes == [(x, y, name) for x, y in ((None, None), ("x3", "y3"), ("x4", "y4"), ("x5", "y5")) for name in "ab"]
    layout = spec["layout"]
    assert layout["panels"] == ["calm", "&lt;slow&gt;", "far", "near"] and layout["xaxis"]["range"] == [0, 10]
    assert layout["yaxis"]["range"][0] == 0 and 40 < layout["yaxis"]["range"][1] < 42
    assert "panels" not in lines("t", "rounds", "loss", [DRAWN[0]._replace(panel="")])
