"""The package's architecture, read from its imports: a drawing of the rooms, and a table of their sizes.

    python benchmarks/architecture.py --write docs                  # docs/architecture.svg
    python benchmarks/architecture.py --counts                      # files, lines, imports and circles of every room
    python benchmarks/architecture.py --counts --root OTHER         # the same of another checkout

A *room* is a folder with Python files. This program needs only the standard library.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from house import GROUND, ORDER, PACKAGE, SURFACE, House, dotted, place, read


def table(house: House) -> str:
    """Return a table with a row for each room and one for the sum.

    Columns: files, lines, longest file, imports inside, from outside and to outside, circles. Imports are pairs of
    files. A circle counts in every room that it passes through.
    """
    rows: list[tuple[str, ...]] = [("room", "files", "lines", "longest", "inside", "in", "out", "circles")]
    rooms = sorted({module.room for module in house.modules.values()})
    between = Counter((importer.room, imported.room) for importer, imported in house.arrows)
    for room in rooms:
        lines = [module.lines for module in house.modules.values() if module.room == room]
        figures = (
            len(lines),
            sum(lines),
            max(lines),
            between[room, room],
            sum(n for (importer, imported), n in between.items() if imported == room != importer),
            sum(n for (importer, imported), n in between.items() if importer == room != imported),
            sum(any(house.modules[name].room == room for name in circle) for circle in house.circles),
        )
        rows.append((room, *map("{:,}".format, figures)))
    lines = [module.lines for module in house.modules.values()]
    crossing = sum(n for (importer, imported), n in between.items() if importer != imported)
    total = (len(lines), sum(lines), max(lines), len(house.arrows) - crossing, crossing, crossing, len(house.circles))
    rows.append((f"{len(rooms)} rooms", *map("{:,}".format, total)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    text += ["", *(f"circle: {', '.join(sorted(circle))}" for circle in house.circles)]
    text += [f"upward: {importer} → {imported}" for importer, imported in house.upward]
    return "\n".join(text).rstrip() + "\n"


BOX = (100, 46)
STEP = 114
MARGIN = 44
STYLE = """
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1d2a38; text-anchor: middle; }
.small { font-size: 11px; fill: #5b6b7d; } .layer { font-size: 15px; font-weight: 600; text-anchor: start; }
.start { text-anchor: start; } .count { paint-order: stroke; stroke: #f2f5f9; stroke-width: 3; }
.paper { fill: #ffffff; } .panel { fill: #f2f5f9; stroke: #c3cedb; } .box { fill: #ffffff; stroke: #4a6078; }
.arrow { fill: none; stroke: #2f6db3; stroke-opacity: 0.75; } .head { fill: #2f6db3; }
.up { stroke: #c2412d; } .uphead { fill: #c2412d; }
@media (prefers-color-scheme: dark) {
text { fill: #e4eaf1; } .small { fill: #9fb0c3; } .paper { fill: #0f151c; }
.count { stroke: #18212b; }
.panel { fill: #18212b; stroke: #34445a; } .box { fill: #0f151c; stroke: #8aa0b8; }
.arrow { stroke: #6aa9ee; } .head { fill: #6aa9ee; } .up { stroke: #ff8a75; } .uphead { fill: #ff8a75; }
}
"""


@dataclass(frozen=True)
class Panel:
    """Where a layer is drawn.

    Attributes:
        layer: its name.
        x: left edge.
        y: top.
        what: the words below its name.
    """

    layer: str
    x: int
    y: int
    what: str

    @property
    def names(self) -> list[str]:
        """The layer's boxes from left to right: an importer is left of what it imports."""
        return [name for level in reversed(ORDER[self.layer]) for name in level]

    @property
    def width(self) -> int:
        return STEP * len(self.names) + 8

    @property
    def height(self) -> int:
        return 150 if len(self.names) <= 2 else 106 + 14 * len(self.names)

    @property
    def floor(self) -> int:
        """The top of the boxes."""
        return self.y + self.height - BOX[1] - 30

    def middle(self, name: str) -> int:
        return self.x + 4 + STEP * self.names.index(name) + STEP // 2


LEFT = 54
"""The left edge of most panels, and what is left free at both sides."""
GAP = 52


def _panels() -> dict[str, Panel]:
    studies = Panel("studies", LEFT, 64, "what is asked of many runs")
    top = Panel("scenarios", LEFT, studies.y + studies.height + GAP, "what happens")
    agents = Panel("agents", LEFT, top.y + top.height + GAP, "who acts")
    bus = Panel("bus", LEFT, agents.y + agents.height + GAP, "how bytes move")
    algorithms = Panel("algorithms", bus.x + bus.width + 30, bus.y, "what is computed")
    models = Panel("models", LEFT, bus.y + max(bus.height, algorithms.height) + GAP, "what is trained")
    return {panel.layer: panel for panel in (studies, top, agents, bus, algorithms, models)}


PANELS = _panels()
WIDTH = max(panel.x + panel.width for panel in PANELS.values()) + LEFT
HEIGHT = PANELS["models"].y + PANELS["models"].height + 32


def _routes() -> dict[tuple[str, str], tuple[str, tuple[int, int]]]:
    """For each pair of layers the arrow's path, and where its count stands; none where the upper two skip a layer."""

    def down(above: Panel, below: Panel, x: int) -> tuple[str, tuple[int, int]]:
        start = above.y + above.height
        return f"M{x} {start} V{below.y}", (x + 16, below.y - 20)

    def beside(above: Panel, below: Panel, x: int, start: int, end: int) -> tuple[str, tuple[int, int]]:
        path = f"M{start} {above.y + above.height // 2} H{x} V{below.y + below.height // 2} H{end}"
        return path, (x + (14 if x < LEFT else -14), above.y + above.height + GAP)

    studies, top, agents, bus, algorithms, models = PANELS.values()
    right = top.x + top.width
    return {
        ("seedbus", "studies"): ("M120 42 V64", (130, 58)),
        ("studies", "scenarios"): down(studies, top, 190),
        ("scenarios", "agents"): down(top, agents, 400),
        ("agents", "bus"): down(agents, bus, 190),
        ("agents", "algorithms"): down(agents, algorithms, 520),
        ("scenarios", "bus"): beside(top, bus, LEFT // 2, LEFT, LEFT),
        ("scenarios", "algorithms"): down(top, algorithms, 860),
        ("scenarios", "models"): beside(top, models, right + LEFT // 2, right, models.x + models.width),
    }


ROUTES = _routes()


def draw(house: House) -> str:
    """Return the drawing as SVG, for light and dark pages. The same imports give the same text."""
    sizes: Counter[tuple[str, str]] = Counter()
    for module in house.modules.values():
        layer = module.room.partition("/")[0]
        sizes[layer, place(module, layer)] += 1
    inside: Counter[tuple[str, str, str]] = Counter()
    across: Counter[tuple[str, str]] = Counter()
    for importer, imported in house.arrows:
        if imported.name in {f"{PACKAGE}.{name}" for name in GROUND} or importer.name == f"{PACKAGE}.{SURFACE}":
            continue
        layer, other = importer.room.partition("/")[0], imported.room.partition("/")[0]
        above, below = place(importer, layer), place(imported, other)
        if layer != other:
            across[layer, other] += (layer, other) in ROUTES
        elif above != below and not importer.name == dotted(layer):
            inside[layer, above, below] += 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="The rooms of {PACKAGE} and the imports between them">',
        f"<style>{STYLE}</style>",
        f"<defs>{marker('down', 'head')}{marker('up', 'uphead')}</defs>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="layer" x="84" y="34">{PACKAGE}</text>',
        '<text class="small start" x="160" y="34">the face: load, run, replay, compare; and cli, the commands</text>',
    ]
    for panel in PANELS.values():
        parts += [
            f'<rect class="panel" x="{panel.x}" y="{panel.y}" width="{panel.width}" height="{panel.height}" rx="8"/>',
            f'<text class="layer" x="{panel.x + 12}" y="{panel.y + 24}">{panel.layer}/</text>',
            f'<text class="small start" x="{panel.x + 12}" y="{panel.y + 40}">{panel.what}</text>',
        ]
    parts += [
        arrow(*ROUTES[pair], n, f"{pair[0]} imports {pair[1]}", up=False) for pair, n in sorted(across.items()) if n
    ]
    for (layer, above, below), n in sorted(inside.items()):
        parts.append(arc(PANELS[layer], above, below, n))
    for panel in PANELS.values():
        for name in panel.names:
            label = name or "its own files"
            files = sizes[panel.layer, name]
            parts.append(box(panel.middle(name), panel.floor, label, f"{files} file{'s'[: files > 1]}"))
    parts.append(
        f'<text class="small" x="{WIDTH // 2}" y="{HEIGHT - 10}">'
        "arrows: imports, from importer to imported, by pairs of files; red: against the declared order; "
        f"not drawn: {' and '.join(f'{PACKAGE}/{name}.py' for name in GROUND)}, "
        f"which every layer may import, and {PACKAGE}/{SURFACE}.py, which collects what plug-ins need</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def marker(name: str, kind: str) -> str:
    """An arrow's head."""
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}" d="M0 0 L8 4 L0 8 z"/></marker>'
    )


def box(middle: int, top: int, label: str, below: str) -> str:
    wide, high = BOX
    return (
        f'<rect class="box" x="{middle - wide // 2}" y="{top}" width="{wide}" height="{high}" rx="6"/>'
        f'<text x="{middle}" y="{top + 20}">{label}</text>'
        f'<text class="small" x="{middle}" y="{top + 37}">{below}</text>'
    )


def arc(panel: Panel, above: str, below: str, n: int) -> str:
    """An arrow between two boxes of a layer: above them, or below them if it runs against the order."""
    start, end = panel.middle(above), panel.middle(below)
    up = end < start
    steps = abs(end - start) // STEP
    start += 14 if start < end else -14
    end -= 14 if start < end else -14
    base = panel.floor + (BOX[1] + 3 if up else -3)
    height = 12 + 14 * steps
    bend = base + (min(height, 26) if up else -height * 4 // 3)
    top = base + ((bend - base) * 3) // 4
    path = f"M{start} {base} C{start} {bend} {end} {bend} {end} {base}"
    where = ((start + end) // 2, top + 4)
    title = f"{panel.layer}/{above} imports {panel.layer}/{below}"
    return arrow(path, where, n, title, up=up)


def arrow(path: str, label: tuple[int, int], n: int, title: str, *, up: bool) -> str:
    """One path with its count; its width grows with the square root of the count."""
    width = round(min(1 + n**0.5 / 2.5, 5), 1)
    x, y = label
    kind, end = ("arrow up", "up") if up else ("arrow", "down")
    return (
        f"<g><title>{title}: {n}</title>"
        f'<path class="{kind}" stroke-width="{width}" d="{path}" marker-end="url(#{end})"/>'
        f'<text class="small count" x="{x}" y="{y}">{n}</text></g>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="another checkout")
    parser.add_argument("--counts", action="store_true", help="print the table")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="where architecture.svg goes")
    asked = parser.parse_args()
    house = read(asked.root)
    if asked.write:
        (asked.write / "architecture.svg").write_text(draw(house), encoding="utf-8")
    if asked.counts or not asked.write:
        print(table(house), end="")


if __name__ == "__main__":
    main()
