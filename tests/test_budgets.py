"""What stands outside a feature's own room does not grow unseen (CONTRIBUTING.md)."""

from __future__ import annotations

import ast

import pytest
from budgets import _statements, of_run, of_source, read, risen

REMEDY = "delete, or `python benchmarks/budgets.py --write --reason TEXT`"


def test_no_budget_of_the_source_is_exceeded() -> None:
    assert risen(of_source(), read()) == [], REMEDY


@pytest.mark.slow
def test_no_budget_of_a_run_is_exceeded() -> None:
    found = of_run()
    assert risen(found, read()) == [], REMEDY
    assert found["files that an ordinary round passes"] > 30


def test_what_has_risen_or_has_no_budget_is_named() -> None:
    kept = {"lines": {"most": 3}, "files": {"most": 2}}
    assert risen({"lines": 3, "files": 1}, kept) == []
    assert risen({"lines": 4, "files": 2, "doors": 1}, kept) == [
        "lines: 4; accepted are 3",
        "doors: it has no budget",
    ]


def test_a_docstring_is_no_statement() -> None:
    source = "def f():\n    'what it does'\n    return 1\n"
    assert _statements(ast.parse(source)) == 2 == _statements(ast.parse(source.replace("    'what it does'\n", "")))
