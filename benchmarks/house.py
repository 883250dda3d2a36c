"""The package as a graph: its files, the imports between them, import circles, and the order of its folders (rooms).

It is read from the source without importing anything. All imports count, also those inside functions and those that
only a type checker reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "seedbus"
LAYERS = ("seedbus", "studies", "scenarios", "agents", "bus", "algorithms", "models")
GROUND = ("bounded", "capabilities", "discovery", "keyed", "pieces", "settings", "tensors", "vector", "versions")
"""Files of the package's own folder that every layer may import, and that import none of ours."""
SURFACE = "plugin"
"""The file of the package's own folder that collects base classes from all layers, for plug-ins alone."""
FLOOR = ""
"""The name in ORDER of those of a room's own files that ORDER does not list."""

ORDER: dict[str, tuple[tuple[str, ...], ...]] = {
    "studies": ((FLOOR,), ("analysis", "explain", "stress"), ("study",), ("check",)),
    "scenarios": (
        (FLOOR,),
        ("faults", "launchers", "tracking"),
        ("transports",),
        ("schema",),
        ("run_folder",),
        ("reporting",),
        ("consent",),
        ("running", "cli_errors"),
        ("operations", "exporting"),
    ),
    "agents": (
        (FLOOR,),
        ("policies", "catch_up", "measuring"),
        ("secure",),
        ("privacy",),
        ("journal",),
        ("client",),
        ("server",),
        ("launcher",),
        ("gossip",),
    ),
    "bus": ((FLOOR,), ("zeromq",)),
    "bus/zeromq": ((FLOOR,), ("server", "worker")),
    "algorithms": ((FLOOR,), ("aggregation", "directions"), ("scalar_only", "dense")),
    "models": (
        (FLOOR,),
        ("data",),
        ("parameters", "partitions"),
        ("own_code", "client_samples"),
        ("images", "text"),
        ("tables", "custom", "hub"),
        ("tasks",),
    ),
}
"""For each room with sub-rooms, the levels of its content (sub-rooms and single files), from the lowest up.

A module imports from lower levels or from its own name. Different names on one level do not import each other.
"""


@dataclass(frozen=True)
class Module:
    """One file.

    Attributes:
        name: dotted name.
        room: folder in the repository.
        lines: number of lines.
        imports: dotted names of this package's modules that it imports.
    """

    name: str
    room: str
    lines: int
    imports: frozenset[str]


@dataclass(frozen=True)
class House:
    """All modules of a checkout by their dotted names."""

    modules: dict[str, Module]

    @cached_property
    def arrows(self) -> list[tuple[Module, Module]]:
        """(importer, imported), each pair of files once."""
        return [(module, self.modules[name]) for module in self.modules.values() for name in sorted(module.imports)]

    @cached_property
    def circles(self) -> list[frozenset[str]]:
        """The sets of modules that all import each other, directly or through others."""
        reached = {name: self._reached(name) for name in self.modules}
        found = {
            frozenset(other for other in reached[name] if name in reached[other])
            for name in self.modules
            if name in reached[name]
        }
        return sorted(found, key=sorted)

    def _reached(self, name: str) -> set[str]:
        reached: set[str] = set()
        pending = [name]
        while pending:
            new = self.modules[pending.pop()].imports - reached
            reached |= new
            pending += new
        return reached

    @cached_property
    def places(self) -> set[str]:
        """Every room, and every file without its suffix, as paths from the root."""
        files = {f"{module.room}/{module.name.rpartition('.')[2]}" for module in self.modules.values()}
        return files | {module.room for module in self.modules.values()}

    @cached_property
    def upward(self) -> list[tuple[str, str]]:
        """Imports against ORDER, as (importer, imported). A package's `__init__` may re-export all of its content.

        A room that lacks something that ORDER lists, as in another checkout, is not checked.
        """
        found = []
        for room, levels in ORDER.items():
            height = {name: level for level, names in enumerate(levels) for name in names}
            if not {f"{room}/{name}" for name in height if name} <= self.places:
                continue
            for importer, imported in self.arrows:
                if importer.name == dotted(room) or not (is_in(importer, room) and is_in(imported, room)):
                    continue
                above, below = place(importer, room), place(imported, room)
                if above != below and height[below] >= height[above]:
                    found.append((importer.name, imported.name))
        return found


def dotted(room: str) -> str:
    """Return the package of a folder: seedbus.bus.zeromq for bus/zeromq."""
    return PACKAGE if room == PACKAGE else f"{PACKAGE}.{room.replace('/', '.')}"


def is_in(module: Module, room: str) -> bool:
    return module.room == room or module.room.startswith(f"{room}/")


def place(module: Module, room: str) -> str:
    """Return the name in ORDER[room] that a module belongs to."""
    rest = module.name.removeprefix(dotted(room)).lstrip(".").partition(".")[0]
    return rest if any(rest in level for level in ORDER.get(room, ())) else FLOOR


def read(root: Path) -> House:
    """Read a checkout. Raises SyntaxError for a file that is not Python."""
    paths = {name_of(path, root): path for layer in LAYERS for path in sorted((root / layer).rglob("*.py"))}
    modules = {}
    for name, path in paths.items():
        text = path.read_text(encoding="utf-8")
        targets = {found for full in imported(ast.parse(text)) for found in ours(full, paths.keys())} - {name}
        room = path.parent.relative_to(root).as_posix()
        modules[name] = Module(name, room, text.count("\n"), frozenset(targets))
    return House(modules)


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    inner = parts[1:] if parts[0] == PACKAGE else parts
    return ".".join([PACKAGE, *(inner[:-1] if inner[-1] == "__init__" else inner)])


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names of all that a file or a part of it imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def ours(full: str, modules: Iterable[str]) -> set[str]:
    """Return the module that an imported name is, or is in; empty if it is not one of this package."""
    return {full} & set(modules) or {full.rpartition(".")[0]} & set(modules)
