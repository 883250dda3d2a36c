"""Small errors in the code, each of which a test should notice: what a reorganisation of the tests may not lose.

`--write` draws them by key into mutants.json, two in each room (the first two levels of folders). `--run` puts each
into a copy of the checkout, runs the quick tests of its file, or else of its room, and then those of mistakes, and says
whether they fail; `--room ROOM` and `--every N` choose some. A mutant is found by function and line, also in another
file and class. Of one that survives a person has to say whether it changes anything.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE, COPY = ROOT / "benchmarks" / "mutants.json", ROOT / "build" / "mutants"
LAYERS = ("agents", "algorithms", "bus", "models", "scenarios", "seedbus", "studies")
EACH, SEED, LIMIT_S = 2, "1", 300  # mutants of a room; their draw; seconds of a mutant's tests
PAIRS = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn"
OTHER = {one: other for pair in PAIRS.split(", ") for one, other in (pair.split(), pair.split()[::-1])}
MISTAKES = ("tests/mistakes",)  # where sentences of all rooms stand
Mutant = dict[str, str]


def drawn() -> list[Mutant]:
    """Return the mutants, in the order of files: those of a room are of different functions and kinds."""
    found: dict[str, list[Mutant]] = {}
    every = (each for path in product() for each in mutants(path))
    for each in sorted(every, key=lambda one: blake2b("\0".join([SEED, *list(one.values())[1:]]).encode()).digest()):
        chosen = found.setdefault(room(each["file"]), [])
        if len(chosen) < EACH and all(each[what] != one[what] for one in chosen for what in ("function", "kind")):
            chosen.append(each)
    return sorted((each for chosen in found.values() for each in chosen), key=lambda each: list(each.values()))


def room(file: str) -> str:
    return "/".join(file.split("/")[:-1][:2])


def product() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, list[str]]]:
    """Yield FUNCTION or CLASS.FUNCTION, its node, and the lines of the file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    owners: list[ast.Module | ast.ClassDef] = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    for owner in owners:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (f"{owner.name}." if isinstance(owner, ast.ClassDef) else "") + node.name, node, text.splitlines()


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file, of lines without texts that occur once in their function."""
    for name, function, lines in functions(path):
        own = [line.strip() for line in lines[function.lineno - 1 : function.end_lineno]]
        for node in (part for each in function.body for part in ast.walk(each)):
            for kind, old, new in errors(node):
                line, whole = lines[old.lineno - 1].strip(), lines[old.lineno - 1]
                if old.lineno == old.end_lineno and whole.isascii() and own.count(line) == 1 and '"' not in line:
                    becomes = (whole[: old.col_offset] + new + whole[old.end_col_offset :]).strip()
                    file = path.relative_to(ROOT).as_posix()
                    yield dict(file=file, function=name, kind=kind, line=line, becomes=becomes)


def errors(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the kinds of errors at a place of the tree, what of it is replaced, and by which text."""
    match node:
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            other = getattr(ast, OTHER[type(sign).__name__])()
            yield "comparison", node, ast.unparse(ast.Compare(left, [other], [right]))
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield "constant", node, str(number - 1 if number == 1 else number + 1)
        case ast.BoolOp(op=sign, values=values):
            turned = ast.Or() if isinstance(sign, ast.And) else ast.And()
            yield "connective", node, ast.unparse(ast.BoolOp(turned, values))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", test, f"not ({ast.unparse(test)})"
        case ast.Call(func=func, args=[one, two, *rest], keywords=named):
            yield "arguments", node, ast.unparse(ast.Call(func, [two, one, *rest], named))
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield "statement", node, "pass"


def place(mutant: Mutant) -> tuple[Path, int]:
    """Return the file and the line, from 0, of a mutant. Raises LookupError if there is not one such place."""
    file, bare = ROOT / mutant["file"], mutant["function"].rpartition(".")[2]
    found = []
    for files, wanted in (([file], mutant["function"]), ([file], bare), (product(), bare)):
        has = [path for path in files if path.exists() and mutant["line"] in path.read_text(encoding="utf-8")]
        own = [(path, *each) for path in has for each in functions(path) if f".{each[0]}".endswith(f".{wanted}")]
        spans = [(path, lines, range(node.lineno - 1, node.end_lineno or 0)) for path, _, node, lines in own]
        found = [(path, at) for path, lines, span in spans for at in span if lines[at].strip() == mutant["line"]]
        if len(found) == 1:
            return found[0]
    raise LookupError(f"{len(found)} functions {bare} have the line")


def tests_of(file: str) -> tuple[str, ...]:
    """Return the tests of a file, else those of its folder, else of the next folder above that has some."""
    *folders, name = file.split("/")
    above = [ROOT.joinpath("tests", *folders[:count]) for count in range(len(folders), -1, -1)]
    one = above[0] / f"test_{name}"
    found = [one] if one.exists() else next(each for each in (sorted(a.glob("test_*.py")) for a in above) if each)
    return tuple(each.relative_to(ROOT).as_posix() for each in found)


def tested(tests: tuple[str, ...]) -> int:
    """Run tests in the copy and return pytest's exit code, or −1 if they take longer than `LIMIT_S`."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
    try:
        own = os.environ | {"PYTHONPATH": str(COPY)}
        return subprocess.run(command, cwd=COPY, env=own, capture_output=True, timeout=LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        return -1


unharmed = cache(tested)
"""The same without a mutant, once."""


def fate(mutant: Mutant) -> str:
    """Run the tests of a mutant in the copy; return what became of it, and which tests these were."""
    path, number = place(mutant)
    copy, tests = COPY / path.relative_to(ROOT), tests_of(path.relative_to(ROOT).as_posix())
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[number] = lines[number].replace(mutant["line"], mutant["becomes"])
    copy.write_text("".join(lines), encoding="utf-8")
    try:
        code = tested(tests) or tested(MISTAKES)
    finally:
        shutil.copy2(path, copy)
    what = {0: "survived", 5: "no tests", -1: "timed out"}.get(code, "killed")
    if what in ("killed", "timed out") and unharmed(tests) != 0:
        what = "unclear (the same without it)"
    named = tests[0] if len(tests) == 1 else f"{len(tests)} files of {Path(tests[0]).parent}"
    return f"{what:10}  {named}"


def refresh() -> None:
    """Bring the copy up to date. It stays, with the times of its files, so that kernels are not compiled each time."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for old in [path for path in COPY.rglob("*.py") if path.relative_to(COPY).as_posix() not in listed]:
        old.unlink()
    for name in (name for name in listed if (ROOT / name).is_file()):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name)


def main() -> None:
    """Draw the mutants, run the tests of some, or say where they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="draw the mutants anew")
    parser.add_argument("--run", action="store_true", help="run the tests of each")
    parser.add_argument("--room", help="those of this room alone, such as agents/server")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="the first of each N")
    options = parser.parse_args()
    if options.write:
        FILE.write_text("[\n" + ",\n".join(map(json.dumps, drawn())) + "\n]\n", encoding="utf-8")
    if options.run:
        refresh()
    chosen = [each for each in json.loads(FILE.read_text()) if options.room in (None, room(each["file"]))]
    for each in chosen[:: options.every]:
        began = time.monotonic()
        try:
            found = fate(each) if options.run else ":".join(map(str, place(each)))
        except LookupError as error:
            found = f"lost: {error}"
        print(f"{time.monotonic() - began:5.0f} s  {found}\n         {each['file']}  {each['function']}", flush=True)
        print(f"         - {each['line']}\n         + {each['becomes']}", flush=True)


if __name__ == "__main__":
    main()
