"""What the pages show is what is printed, and the Python page names all that may be imported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from documents import PAGES, ROOT, blocks, follow

import seedbus
from seedbus import plugin

FOLLOWED = [page for page in PAGES if any(block.language == "console" for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_every_command_of_a_page_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    differences = [str(difference) for difference in follow(page, tmp_path)]
    assert not differences, "\n".join(differences)


def test_a_command_stands_in_a_block_that_is_run_or_says_why_not() -> None:
    elsewhere = [
        f"{page.name}, line {block.line}: {command}"
        for page in PAGES
        for block in blocks(page)
        if block.language in ("", "text", "sh", "bash", "shell") and not block.title
        for command in re.findall(r"^(?:\w*\$ .*|(?:seedbus|make|pip|python|for) .*)", block.text, re.M)
    ]
    assert not elsewhere, "\n".join(elsewhere)


@pytest.mark.parametrize(
    ("shown", "differs"),
    [
        ("printed 3 lines in 2.5 s\n", False),
        ("printed 3 lines in 3 s\n", False),
        ("printed …\n", False),
        ("…\n", False),
        ("printed 3 rows in 2.5 s\n", True),
        ("printed 3 lines in 2.5 s\nand more\n", True),
        ("", True),
    ],
)
def test_a_page_that_shows_something_else_is_found(shown: str, differs: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```text title="mine.txt"\nprinted 3 lines in 2.5 s\n```\n\n'
        "<!-- not run: it would fail -->\n```console\n$ false; echo no\n```\n\n"
        f"```console\n$ cat \\\n    mine.txt\n{shown}```\n"
    )
    assert bool(list(follow(page, tmp_path))) is differs


@pytest.mark.parametrize("module", [seedbus, plugin], ids=lambda module: module.__name__)
def test_the_python_page_describes_every_name_that_may_be_imported(module: ModuleType) -> None:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    described = set(re.findall(rf"^::: {module.__name__}\.(\w+)$", page, re.M)) | set(re.findall(r"`([A-Z]\w+)`", page))
    assert set(module.__all__) <= described


def property_tests() -> list[tuple[str, str, int, int]]:
    """Return (file, function, examples, cases) of each row in the table of exact-sums.md; its sentence is its name."""
    page = (ROOT / "docs/exact-sums.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| `(tests/\S+\.py)` \| (\d+) \| (\d+) \|$", page, re.M)
    assert rows
    return [(file, "test_" + sentence.replace(" ", "_"), int(many), int(cases)) for sentence, file, many, cases in rows]


def test_the_table_of_property_tests_has_their_numbers_of_examples() -> None:
    """A test without Hypothesis is one example."""
    for file, name, examples, _ in property_tests():
        functions = [node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
        (function,) = [node for node in functions if node.name == name]
        decorators = "\n".join(ast.unparse(each) for each in function.decorator_list)
        found = re.findall(r"^settings\(.*\bmax_examples=(\d+)", decorators, re.M)
        assert ("given(" in decorators) == bool(found)
        assert [examples] == [*map(int, found or [1])], f"{file}::{name}"


@pytest.mark.slow
def test_the_table_of_property_tests_has_their_numbers_of_cases() -> None:
    rows = property_tests()
    files = sorted({file for file, *_ in rows})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    cases = Counter(line.partition("[")[0] for line in listed.splitlines())
    assert {(file, name): cases[f"{file}::{name}"] for file, name, *_ in rows} == {
        (file, name): count for file, name, _, count in rows
    }
