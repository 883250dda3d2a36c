"""The mutants that benchmarks/mutants.py has drawn are in the code, and a test fails with one."""

from __future__ import annotations

import ast
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import mutants
import pytest

DRAWN = json.loads(mutants.FILE.read_text(encoding="utf-8"))


def test_mutants_are_spread_over_rooms_and_kinds() -> None:
    rooms = Counter(mutants.room(each["file"]) for each in DRAWN)
    assert max(rooms.values()) == 2
    assert len(rooms) >= 40
    assert len({each["kind"] for each in DRAWN}) == 6


@pytest.mark.slow
def test_sixty_mutants_are_still_in_the_code_and_are_code() -> None:
    """Lines change, and their mutants are lost; when fewer than sixty are left, they are drawn again."""
    left = 0
    for each in DRAWN:
        with suppress(LookupError):
            path, number = mutants.place(each)
            lines = path.read_text(encoding="utf-8").splitlines()
            lines[number] = lines[number].replace(each["line"], each["becomes"])
            ast.parse("\n".join(lines))
            left += 1
    assert left >= 60, "python benchmarks/mutants.py --write"


def test_a_mutant_is_found_in_another_file_and_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / "new.py").write_text("class New:\n    def f(self, x):\n        return x < 3\n")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    lost = {"file": "bus/old.py", "function": "Old.f", "line": "return x < 3"}
    assert mutants.place(lost) == (tmp_path / "bus" / "new.py", 2)
    with pytest.raises(LookupError, match="0 functions f have the line"):
        mutants.place(lost | {"line": "return x < 4"})
