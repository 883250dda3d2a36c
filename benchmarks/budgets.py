"""The size of Seedbus in numbers that may only fall, and a check against those that are committed.

`python benchmarks/budgets.py` prints them beside benchmarks/budgets.json; `--write` replaces the numbers there, and
`--reason TEXT` is kept beside each that has risen. Statements are counted in the syntax tree, so that a docstring that
goes gains nothing. The files of a round and of a run are those in which a function was entered.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "budgets.json"
PRODUCT = ("agents", "algorithms", "bus", "models", "scenarios", "seedbus", "studies")
OWN_ROOMS = {
    "secure sums": (r"secure", ("agents/secure/",)),
    "privacy": (r"privacy", ("agents/privacy/",)),
    "gossip": (r"gossip|topology", ("agents/gossip/",)),
    "streams": (r"streamed|mode: stream|\"stream\"", ("agents/policies/participation.py", "agents/server/overdue.py")),
    "snapshots": (r"snapshot", ("agents/catch_up/", "studies/analysis/break_even.py")),
    "arithmetic": (
        r"arithmetic: (integer|bf|float)|\.arithmetic|\"arithmetic\"",
        ("algorithms/scalar_only/exact.py", "algorithms/directions/exact.py"),
    ),
}
"""Feature → what its name looks like in a source, and the rooms and files that are its own."""
LONG, WIDE = 40, 8
"""Lines of a function, and its parameters, above which it counts as long and as wide."""
SCENARIO: dict[str, Any] = {
    "name": "ordinary",
    "task": {"name": "quadratic", "dimension": 203},
    "algorithm": {"name": "decomfl"},
    "participation": {"clients": 2, "cohort": 2},
    "stop": {"rounds": 3},
}
DATA_PAGES = ("docs/reference.md", "docs/claims.md", "docs/combinations.md")
"""Pages that a program writes."""


def of_source() -> dict[str, int]:
    """Return the budgets that are read from the source: name → number."""
    trees = _trees()
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    fields, options, commands = _surface()
    return {
        "product, lines": sum(map(_lines, trees)),
        "product, statements": sum(_statements(tree) for tree in trees.values()),
        "product, files": len(trees),
        **{f"files outside its own rooms that name {feature}": _named(*how) for feature, how in OWN_ROOMS.items()},
        "members of the algorithm contract": _contract(trees),
        "field names": fields,
        "options": options,
        "commands": commands,
        f"functions with more than {WIDE} parameters": sum(_parameters(each) > WIDE for each in functions),
        f"functions longer than {LONG} lines": sum(_length(each) > LONG for each in functions),
        "tests, lines": sum(map(_lines, (ROOT / "tests").rglob("*.py"))),
        "README and pages, words": sum(len(page.read_text(encoding="utf-8").split()) for page in _pages()),
    }


def of_run() -> dict[str, int]:
    """Return the budgets that a run with two clients in memory shows: name → number."""
    in_round, in_run = _traced()
    return {
        "files that an ordinary round passes": len(in_round),
        "files from a scenario to its results": len(in_run),
    }


def risen(found: dict[str, int], kept: dict[str, dict[str, Any]]) -> list[str]:
    """Return a sentence for each budget that is exceeded, or is not among those kept."""
    return [
        f"{name}: {number:,}; accepted are {kept[name]['most']:,}" if name in kept else f"{name}: it has no budget"
        for name, number in found.items()
        if name not in kept or number > kept[name]["most"]
    ]


def read() -> dict[str, dict[str, Any]]:
    """Return the committed budgets: name → `most`, and `reason` where it has risen."""
    kept: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return kept


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def _trees() -> dict[Path, ast.Module]:
    files = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def _statements(tree: ast.Module) -> int:
    every = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    texts = [node for node in every if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return len(every) - len(texts)


def _named(pattern: str, own: tuple[str, ...]) -> int:
    names = re.compile(pattern, re.IGNORECASE)
    files = [path for path in _trees() if not path.relative_to(ROOT).as_posix().startswith(own or ("\0",))]
    return sum(names.search(path.read_text(encoding="utf-8")) is not None for path in files)


def _contract(trees: dict[Path, ast.Module]) -> int:
    """How many members the contract has: those of every protocol that stands directly in algorithms/, each name once.

    `objective` is the contract of a task; the record of facts is one member.
    """
    files = [tree for path, tree in trees.items() if path.parent == ROOT / "algorithms" and path.stem != "objective"]
    classes = [node for tree in files for node in tree.body if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if any("Protocol" in ast.unparse(base) for base in node.bases)]
    return len({each.name for node in protocols for each in node.body if isinstance(each, _FUNCTIONS)})


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the last."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if page.relative_to(ROOT).as_posix() not in DATA_PAGES:
            yield page


def _surface() -> tuple[int, int, int]:
    """How many names of fields the reference has, and how many options and commands the command line has."""
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    fields = set(re.findall(r"^\| `([a-z0-9_]+)` \|", reference, re.MULTILINE))
    import typer

    from seedbus.cli.main import app

    group: Any = typer.main.get_command(app)
    options = {name for each in group.commands.values() for one in each.params for name in one.opts if name[:2] == "--"}
    return len(fields), len(options), len(group.commands)


class _Recorder:
    """Records in which files of the product functions are entered: in the whole run, and in its second round."""

    def __init__(self, package: Path) -> None:
        self._package = f"{package}/"
        self.run: set[str] = set()
        self.round: set[str] = set()
        self._closed = 0

    def entered(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # neither a module's nor a class's body
        if event == "call" and is_function and name.startswith(self._package):
            self.run.add(name)
            if self._closed == 1:
                self.round.add(name)

    def round_closed(self, *_: object) -> None:
        self._closed += 1

    def nothing(self, *_: object, **__: object) -> None:
        pass


def _traced() -> tuple[set[str], set[str]]:
    """The files that the second of three rounds passes, with two clients in memory, and those of the whole run."""
    import seedbus

    recorder = _Recorder(Path(seedbus.__file__).parent)
    silent = {name: recorder.nothing for name in ("measured", "refused", "noted")}
    observer: Any = SimpleNamespace(round_closed=recorder.round_closed, **silent)
    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(recorder.entered)
        sys.setprofile(recorder.entered)
        try:
            seedbus.run(SCENARIO, Path(folder) / "run", observer=observer, page=False)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return recorder.round, recorder.run


def main() -> None:
    """Print the budgets, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="replace the numbers of budgets.json")
    parser.add_argument("--reason", default="", help="why numbers have risen; kept beside each that has")
    arguments = parser.parse_args()
    found, kept = of_source() | of_run(), read() if FILE.exists() else {}
    for name, number in found.items():
        most = kept.get(name, {}).get("most", number)
        print(f"{name:55} {number:8,}  of {most:8,}")
    over = risen(found, kept)
    if not arguments.write:
        sys.exit("\n".join(over) or 0)
    if kept and over and not arguments.reason:
        sys.exit("\n".join([*over, "a budget rises with a --reason only"]))
    rows = {}
    for name, number in found.items():
        before = kept.get(name, {})
        has_risen = bool(before) and number > before["most"]
        reason = arguments.reason if has_risen else before.get("reason", "")
        rows[name] = {"most": number} | ({"reason": reason} if reason else {})
    FILE.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
