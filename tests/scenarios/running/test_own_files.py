"""What an owner is told of files that change while a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seedbus.scenarios.running import own_files
from seedbus.scenarios.running.own_files import EVERY_S, OwnFiles

CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "shrinks": ("cat/1.png", Path.unlink),
    "grows": ("dog/9.png", Path.touch),
    "is written to": ("cat/0.png", lambda file: file.write_bytes(b"other")),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_folder_that_changes_is_told_once_with_the_name_of_a_file(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, change = CHANGES[how]
    for file in ("cat/0.png", "cat/1.png", "dog/2.png"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"pixels")
    now, told = [0.0], list[str]()
    monkeypatch.setattr(own_files, "wall_seconds", lambda: now[0])
    files = OwnFiles([tmp_path], lambda event, *, file, effect: told.append(file))
    for then_s, happens in ((EVERY_S, False), (2 * EVERY_S, True), (9 * EVERY_S, True)):
        if happens:
            change(tmp_path / name)
        now[0] = then_s
        files.look()
        if not happens:
            assert not told
        elif how == "shrinks":
            break
    assert told == [str(tmp_path / name)]
