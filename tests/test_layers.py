"""The imports that each layer may have, and the few modules that may read a clock or draw random numbers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from house import GROUND, SURFACE, House, imported, name_of, read

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "bus": {"bus"},
    "algorithms": {"algorithms"},
    "models": {"models"},
    "agents": {"agents", "bus", "algorithms"},
    "scenarios": {"scenarios", "agents", "bus", "algorithms", "models"},
    "studies": {"studies", "scenarios", "agents", "bus", "algorithms", "models"},
}
FACADE = "seedbus"
CLOCKS = {"bus/clock.py", "algorithms/directions/look_ups.py"}  # the second times two kernels
KEEPER = "models/own_code/repeated.py"
"""The module that seeds, compares and restores the generators from which the user's code may draw."""
GENERATORS = ("algorithms/directions/", "models/generators.py")
SEEDED = {"Generator", "Philox", "SeedSequence", "BitGenerator"}

PACKAGE = sorted(path for folder in (*ALLOWED, FACADE) for path in (ROOT / folder).rglob("*.py"))
AROUND = sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def found_in(paths: list[Path], find: Callable[[Path], set[str]]) -> dict[str, set[str]]:
    """Return what `find` finds, by file; files in which it finds nothing are left out."""
    return {name(path): found for path in paths if (found := find(path))}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_in(path: Path) -> frozenset[str]:
    """Return the dotted names of all imports of a file."""
    return frozenset(imported(tree(path)))


def at_import_time(module: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run on import: neither function bodies nor blocks for type checkers."""
    pending: list[ast.stmt] = list(module.body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and dotted(statement.test).endswith("TYPE_CHECKING"):
            pending += statement.orelse
            continue
        yield statement
        pending += [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]


def dotted(node: ast.AST) -> str:
    """Return a name or an attribute in dotted form (a.b.c); an empty string for other nodes."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def test_there_is_something_to_read() -> None:
    assert {name(path).split("/")[0] for path in PACKAGE} == {*ALLOWED, FACADE} and len(PACKAGE) > 40
    assert Path(__file__) in AROUND and ROOT / "benchmarks" / "bus.py" in AROUND


@pytest.mark.slow
def test_a_module_imports_only_from_the_layers_below_it() -> None:
    def upward(path: Path) -> set[str]:
        own = {full.split(".")[1] for full in imports_in(path) if full.startswith("seedbus.")}
        return own - ALLOWED.get(name(path).split("/")[0], {*ALLOWED, "cli"}) - set(GROUND)

    assert found_in(PACKAGE, upward) == {}


@pytest.mark.parametrize("name", GROUND)
def test_what_all_layers_import_imports_none_of_them(name: str) -> None:
    assert not [full for full in imports_in(ROOT / FACADE / f"{name}.py") if full.startswith("seedbus")]


MODULES = {name_of(path, ROOT): path for path in PACKAGE}
ROOMS = sorted(name for name, path in MODULES.items() if path.name == "__init__.py" and name != FACADE)


@cache
def house() -> House:
    """Return all modules and the imports between them, also those inside functions and for type checkers."""
    return read(ROOT)


@pytest.mark.few(8)
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_is_entered_by_its_doors(room: str) -> None:
    """`Doors:` in a room's docstring lists the modules that other rooms import; all others are internal."""
    what, _, named = (ast.get_docstring(tree(MODULES[room])) or "").partition("\nDoors: ")
    doors = set(re.findall(r"`(\w+)`", named))
    assert what.strip() and all(f"{room}.{door}" in MODULES for door in doors)
    surface = f"{FACADE}.{SURFACE}"  # it opens no door: it repeats what plug-ins may use
    outside = [name for name in MODULES if name not in {room, surface} and not name.startswith(f"{room}.")]
    used = {
        full[len(room) + 1 :].partition(".")[0]
        for name in outside
        for full in house().modules[name].imports
        if full.startswith(f"{room}.")
    }
    assert used == doors


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and imports for type checkers count, too."""
    assert house().circles == []


@pytest.mark.slow
def test_no_import_runs_up_from_one_room_of_a_layer_to_another() -> None:
    """`ORDER` in `benchmarks/house.py` defines the order of the rooms."""
    assert house().upward == []


@pytest.mark.slow
def test_no_module_imports_relatively() -> None:
    def relative(path: Path) -> set[str]:
        return {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom) and node.level}

    ours = [path for path in PACKAGE if "flower_app" not in path.parts]  # an exported app is a package of its own
    assert found_in(ours, relative) == {}


def test_the_facade_imports_our_layers_only_when_they_are_asked_for() -> None:
    facade = tree(ROOT / FACADE / "__init__.py")
    eager = [full for statement in at_import_time(facade) for full in imports_of(statement)]
    assert not [full for full in eager if full.startswith("seedbus.")]


def imports_of(statement: ast.stmt) -> list[str]:
    return list(imported(statement)) if isinstance(statement, ast.Import | ast.ImportFrom) else []


def roots(path: Path) -> set[str]:
    """Return the packages that a file imports from."""
    return {full.split(".")[0] for full in imports_in(path)}


@pytest.mark.slow
def test_our_folders_are_never_imported_by_their_bare_names() -> None:
    assert found_in(PACKAGE + AROUND, lambda path: roots(path) & set(ALLOWED)) == {}


@pytest.mark.slow
def test_only_the_clock_looks_at_real_time() -> None:
    def looks(path: Path) -> set[str]:
        asked = {full for full in map(dotted, ast.walk(tree(path))) if full.endswith((".now", ".utcnow", ".today"))}
        return asked | roots(path) & {"time", "timeit", "sched"}

    assert set(found_in(PACKAGE, looks)) <= CLOCKS


def test_no_module_imports_pythons_generators() -> None:
    found = found_in(PACKAGE, lambda path: roots(path) & {"random", "secrets", "uuid"})
    assert found == {KEEPER: {"random"}}


@pytest.mark.slow
def test_only_seeded_streams_touch_a_generator() -> None:
    """Other modules use np.random only for type names, never for `np.random.seed`, `default_rng()` or a global draw."""

    def draws(path: Path) -> set[str]:
        calls = set(map(dotted, ast.walk(tree(path))))
        used = {full for full in calls | imports_in(path) if "random." in full}
        numpys = {full for full in used if full.startswith(("np.random.", "numpy.random."))}
        return (
            {full for full in numpys if full.split(".")[2] not in SEEDED}
            | {full for full in used if full.startswith("torch.random")}
            | calls & {"torch.manual_seed", "torch.seed", "torch.randn", "torch.rand", "torch.randperm"}
        )

    assert found_in([path for path in PACKAGE if not name(path).startswith((*GENERATORS, KEEPER))], draws) == {}


def test_every_public_module_says_what_it_is() -> None:
    modules = [path for path in PACKAGE if path.name != "__main__.py"]
    assert not [name(path) for path in modules if not (ast.get_docstring(tree(path)) or "").strip()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "seedbus",
        "seedbus.bus",
        "seedbus.agents.server.server",
        "seedbus.agents.launcher",
        "seedbus.scenarios.schema.scenario",
    ],
)
def test_importing_it_imports_nothing_heavy(module: str) -> None:
    heavy = ("torch", "pandas", "sklearn", "zmq")
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT / "tests"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_importing_the_bus_imports_no_other_layer() -> None:
    code = "import sys, seedbus.bus; print(sorted({n.split('.')[1] for n in sys.modules if n.startswith('seedbus.')}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "tests")
    assert done.stdout.strip() == "['bounded', 'bus', 'capabilities', 'keyed', 'pieces', 'settings']", done.stderr


DEVICE = re.compile(r"\bdevices?\b|_device\b|\bgpu|cuda|\bmps\b", re.IGNORECASE)
ON_DEVICES = r"algorithms/directions/(blocks|low_rank|selection|tensor_directions|torch_backend|triton_\w+)\.py"


def test_no_algorithm_mentions_a_device() -> None:
    """Only the directions, which compute where a vector lies, know of them: their backends, and what chooses one."""
    counts = {
        name(path): sum(bool(DEVICE.search(line)) for line in path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE
        if path.is_relative_to(ROOT / "algorithms")
    }
    others = {file: count for file, count in counts.items() if not re.fullmatch(ON_DEVICES, file)}
    print(f"lines that mention a device: {sum(others.values())} in {len(others)} files")  # noqa: T201
    assert {file: count for file, count in others.items() if count} == {}
    assert len(others) > 50 and all(counts[file] for file in counts.keys() - others.keys())
