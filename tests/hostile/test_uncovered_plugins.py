"""A plug-in's digest covers all that its imports run: whatever else they would run is refused by name."""

from __future__ import annotations

import py_compile
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from commands import Command
from plugin_files import forget

from seedbus.discovery import PLUGINS
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema import plugin_imports
from seedbus.scenarios.schema.plugins import load_module, load_plugin

FAULT = """
from typing import Literal
from seedbus.plugin import MessageSelector
class Mine(MessageSelector):
    fault: Literal["mine"] = "mine"
"""
PLANTED = "from pathlib import Path\nPath('planted').touch()\n"
HERE = "import sys, os\nhere = os.path.dirname(os.path.dirname(__file__))\n"
BESIDE = "is no file of the plug-in, so its digest does not cover it"


@pytest.fixture(autouse=True)
def _forgotten(no_plugins: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "nothing")  # what plug-ins add to the path goes with it
    plugin_imports._folders.cache_clear()  # else a folder that one of them makes look installed is known as none


def bytecode(path: Path, text: str, kept: Path | None = None) -> None:
    """Leave bytecode that Python would run without looking at a source."""
    source = path.with_name("planted_source.py")
    source.write_text(text)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), cfile=str(kept or path), invalidation_mode=unchecked)
    source.unlink()


def linked_folder(mine: Path) -> str:
    elsewhere = mine.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "__init__.py").write_text(PLANTED)
    (mine / "part").symlink_to(elsewhere)
    (mine / "__init__.py").write_text("from . import part" + FAULT)
    return "mine/part is a link to a folder"


def native_code(mine: Path) -> str:
    (mine / f"part{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")
    (mine / "__init__.py").write_text("from . import part" + FAULT)
    return f"mine/part{EXTENSION_SUFFIXES[0]} is native code"


def bytecode_alone(mine: Path) -> str:
    bytecode(mine / "part.pyc", PLANTED)
    (mine / "__init__.py").write_text("from . import part" + FAULT)
    return "mine/part.pyc is bytecode without its source"


def written_by_itself(mine: Path) -> str:
    text = f"from pathlib import Path\nPath(__file__).with_name('part.py').write_text({PLANTED!r})\n"
    (mine / "__init__.py").write_text(text + "from . import part" + FAULT)
    return "mine/part.py is no file, or new since the plug-in was loaded"


def another_path(mine: Path) -> str:
    (mine.parent / "part.py").write_text(PLANTED)
    (mine / "__init__.py").write_text(HERE + "__path__.append(here)\nfrom .part import x" + FAULT)
    return "No module named 'seedbus_plugin_mine.part' among the files of the plug-in"


def beside(mine: Path) -> str:
    (mine.parent / "planted_beside.py").write_text(PLANTED)
    (mine / "__init__.py").write_text(HERE + "sys.path.insert(0, here)\nimport planted_beside" + FAULT)
    return f"planted_beside.py {BESIDE}"


def beside_as_bytecode(mine: Path) -> str:
    bytecode(mine.parent / "planted_pyc.pyc", PLANTED)
    text = "sys.path.insert(0, here)\nfrom importlib import import_module\nimport_module('planted_pyc')"
    (mine / "__init__.py").write_text(HERE + text + FAULT)
    return f"planted_pyc.pyc {BESIDE}"


def in_a_namespace(mine: Path) -> str:
    (mine.parent / "planted_space").mkdir()
    (mine.parent / "planted_space" / "part.py").write_text(PLANTED)
    (mine / "__init__.py").write_text(HERE + "sys.path.insert(0, here)\nimport planted_space.part" + FAULT)
    return f"planted_space/part.py {BESIDE}"


def by_a_pth(mine: Path) -> str:
    elsewhere = mine.parent / "elsewhere" / "site-packages"
    elsewhere.mkdir(parents=True)
    (elsewhere / "planted_site.py").write_text(PLANTED)
    (mine.parent / "own.pth").write_text(f"{elsewhere}\n")
    (mine / "__init__.py").write_text(HERE + "import site\nsite.addsitedir(here)\nimport planted_site" + FAULT)
    return f"planted_site.py {BESIDE}"


@pytest.mark.parametrize(
    "attack",
    [
        linked_folder,
        native_code,
        bytecode_alone,
        written_by_itself,
        another_path,
        beside,
        beside_as_bytecode,
        in_a_namespace,
        by_a_pth,
    ],
)
def test_what_the_digest_of_a_plug_in_does_not_cover_is_refused_by_name(
    attack: Callable[[Path], str], tmp_path: Path, seedbus: Command
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    sentence = attack(mine)
    said = seedbus("run", "quickstart", "-q", "--plugin", mine, "--set", "faults=[{fault: mine}]", "--out", "run")
    assert said.code == 2 and sentence in said.err and said.err.count("\n") == 1, said.err
    assert f"{mine / '__init__.py'}, line " in said.err, "where it is imported"
    assert not Path("planted").exists() and not Path("run").exists()


def test_what_a_plug_in_imports_while_it_works_ends_the_run_in_a_sentence(tmp_path: Path, seedbus: Command) -> None:
    mine = tmp_path / "mine.py"
    (tmp_path / "planted_late.py").write_text(PLANTED)
    mine.write_text(
        FAULT + "    def judge(self, passage):\n        import sys, os\n"
        "        sys.path.insert(0, os.path.dirname(__file__))\n        import planted_late\n"
    )
    changes = ("--set", "faults=[{fault: mine}]", "--set", "participation.deadline_s=1")
    said = seedbus("run", "quickstart", "-q", "--plugin", mine, *changes, "--out", "run")
    assert said.code == 11 and f"planted_late.py {BESIDE}" in said.err and "line 9, in judge" in said.err, said.err
    assert not Path("planted").exists()


def test_code_that_is_other_than_that_of_the_digest_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is a link counts by its content, and an installed module is compiled anew, without its bytecode."""
    inner, mine = tmp_path / "elsewhere.py", tmp_path / "mine"
    mine.mkdir()
    inner.write_text(FAULT)
    (mine / "part.py").symlink_to(inner)
    late = f"from pathlib import Path\nPath({str(inner)!r}).write_text({PLANTED!r})\n"
    (mine / "__init__.py").write_text(late + "from .part import Mine\n")
    load_plugin(mine)
    assert not Path("planted").exists(), "what ran is what was read"
    digest = PLUGINS["mine"].digest
    forget()
    with pytest.raises(ScenarioError, match=r"defines nothing|cannot import name 'Mine'"):
        load_plugin(mine)
    inner.write_text(FAULT + "#")
    load_plugin(mine)
    assert PLUGINS["mine"].digest != digest

    forget()
    Path("planted").unlink(missing_ok=True)
    monkeypatch.syspath_prepend(tmp_path)
    installed = tmp_path / "planted_installed.py"
    installed.write_text(FAULT)
    bytecode(installed, PLANTED, Path(cache_from_source(str(installed))))
    load_module("planted_installed")
    assert not Path("planted").exists() and "planted_installed" in PLUGINS
    (tmp_path / f"planted_native{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF")
    with pytest.raises(ScenarioError, match=r"planted_native.* is no Python file, so no digest covers it"):
        load_module("planted_native")
