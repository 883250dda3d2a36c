"""The architecture drawing matches the imports, its table adds up, and the documents name existing files."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from architecture import PANELS, draw, table
from house import ORDER, PACKAGE, House, read
from site_links import dead_links

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "agents",
    "algorithms",
    "benchmarks",
    "bus",
    "examples",
    "models",
    "scenarios",
    "seedbus",
    "studies",
    "tests",
)
PAGES = sorted(
    path for folder in (".", "docs", "docs/*", "examples", "benchmarks") for path in ROOT.glob(f"{folder}/*.md")
)
READERS = {"careless.py", "mine.py", "notebook.py", "paper.py", "sparse.py"}
"""Files of a reader's own, which pages name as examples."""


@pytest.fixture(scope="module")
def house() -> House:
    return read(ROOT)


def test_the_drawing_is_drawn_from_the_imports_as_they_are_now(house: House) -> None:
    committed = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert committed == draw(house), "run `make docs`"


def test_the_drawing_has_a_box_for_every_room_of_the_first_two_floors(house: House) -> None:
    drawn = {f"{layer}/{name}".rstrip("/") for layer, panel in PANELS.items() for name in panel.names}
    rooms = {"/".join(module.room.split("/")[:2]) for module in house.modules.values()} - {PACKAGE, f"{PACKAGE}/cli"}
    assert rooms <= drawn
    words = {text.text for text in ElementTree.fromstring(draw(house)).iter("{http://www.w3.org/2000/svg}text")}
    assert {room.rpartition("/")[2] for room in rooms if "/" in room} <= words


def test_the_order_names_only_what_exists(house: House) -> None:
    named = {f"{room}/{name}" for room, levels in ORDER.items() for level in levels for name in level if name}
    assert named <= house.places


def test_the_table_adds_up(house: House) -> None:
    rows = [row.replace(",", "").split() for row in table(house).partition("\n\n")[0].splitlines()[1:]]
    rooms, total = rows[:-1], rows[-1]
    assert int(total[0]) == len(rooms)
    for column in (1, 2, 4, 5, 6):  # files, lines, imports inside, in, out
        assert sum(int(row[column]) for row in rooms) == int(total[column + 1])


def test_imports_are_found_inside_functions_and_under_type_checking(tmp_path: Path) -> None:
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / "__init__.py").write_text("")
    (tmp_path / "bus" / "a.py").write_text("def f():\n    from seedbus.bus.b import g\n")
    (tmp_path / "bus" / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import seedbus.bus.a\n"
    )
    assert read(tmp_path).circles == [frozenset({"seedbus.bus.a", "seedbus.bus.b"})]


def test_an_import_against_the_order_is_found_and_an_init_may_export_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "bus" / "zeromq").mkdir(parents=True)
    (tmp_path / "bus" / "__init__.py").write_text("from seedbus.bus.zeromq.hub import Hub\n")
    (tmp_path / "bus" / "zeromq" / "hub.py").write_text("import seedbus.bus.bus\n")
    (tmp_path / "bus" / "bus.py").write_text("from seedbus.bus.zeromq.hub import Hub\n")
    assert read(tmp_path).upward == [("seedbus.bus.bus", "seedbus.bus.zeromq.hub")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_file_that_a_page_names_is_there(page: Path) -> None:
    """A page may omit the first folders of a path."""
    paths = "\n".join(path.as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w.])[\w/]+\.py\b", text)) - set(re.findall(r'^```\w+ title="(.+)"$', text, re.M))
    assert not [name for name in sorted(named - READERS) if f"/{name.lstrip('/')}" not in paths]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_and_heading_that_a_page_links_to_is_there(page: Path) -> None:
    for target, _, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(#?)([^)\s]*)\)", page.read_text(encoding="utf-8")):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if heading:
            headings = re.findall(r"(?m)^#+ (.+)$", linked.read_text(encoding="utf-8"))
            anchors = {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
            assert heading in anchors, (target, heading)


def test_a_dead_link_of_the_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1> <a href="#top"></a> <a href="b.html#end"></a> <a href="https://a.b"></a>'
    )
    (tmp_path / "b.html").write_text(
        '<a href="a.html#bottom"></a> <a href="c.html?x=1"></a> <img src="p.png"> <a href="./a.html"></a>'
    )
    dead = ["a.html: b.html#end", "b.html: a.html#bottom", "b.html: c.html?x=1", "b.html: p.png"]
    assert dead_links(tmp_path) == (6, dead)


def test_the_site_shows_every_page_once() -> None:
    named = re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(named) == sorted(path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md"))
