"""Imports what plug-ins consist of: only files that their digests cover, and for the rest installed packages.

The invariant: the code of a plug-in's module is compiled from the very bytes of which its digest was made. Bytecode is
neither read nor written, so none can be that of other code. What is no file of the plug-in's own folder (native code,
bytecode alone, a linked folder, a module that lies beside the plug-in) is refused by name when it is imported.

It cannot cover what no import statement runs: files that a plug-in reads and executes by itself, libraries that it
loads by `ctypes`, and modules that the program had imported before.
"""

from __future__ import annotations

import json
import os
import site
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

PREFIX = "seedbus_plugin_"
"""Of the modules of plug-ins that are files, so that no file hides a module of others."""
_SEARCHED = tuple(sys.path)  # before any plug-in can add to it
_INSTALLED = ("site-packages", "dist-packages")


class _FromDigest(SourceFileLoader):
    """Compiles the source of which the digest was made, and not what the file holds meanwhile."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("bytecode is neither read nor written")

    def get_data(self, path: str) -> bytes:
        return self._source if path == self.path else super().get_data(path)


class PluginImports:
    """Finds the modules of plug-ins, and what these import. It is the first that Python asks."""

    def __init__(self) -> None:
        self._plugins: dict[str, tuple[str, dict[str, bytes]]] = {}  # module → its path without .py, its files by path

    def add(self, module: str, place: Path, files: Mapping[str, bytes]) -> object:
        """Make a plug-in importable, and return what was known of that name, for `put_back`.

        Args:
            module: its name.
            place: its file or folder.
            files: the content of its files, by their paths relative to the folder above it.
        """
        above = str(place.absolute().parent)
        contents = {os.path.join(above, name): content for name, content in files.items()}
        earlier = self._plugins.pop(module, None)
        self._plugins[module] = (str(place.absolute()).removesuffix(".py"), contents)
        return earlier

    def put_back(self, module: str, earlier: Any) -> None:
        """Undo an `add`, which returned this."""
        del self._plugins[module]
        if earlier is not None:
            self._plugins[module] = earlier

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module is; None: it is none of a plug-in's own, and not imported by one.

        Raises:
            ImportError: the import would run what no digest covers.
        """
        module = self._plugin_of(name)
        if module is not None:
            return self._own(name, module)
        return self._of_others(name, path, target) if self._is_asked_by_plugin() else None

    def _plugin_of(self, name: object) -> str | None:
        """Return the plug-in's module that a module is in; None: it is in none."""
        if not self._plugins or not isinstance(name, str):
            return None
        return next((each for each in self._plugins if name == each or name.startswith(f"{each}.")), None)

    def _own(self, name: str, module: str) -> ModuleSpec:
        root, files = self._plugins[module]
        stem = os.path.join(root, *name[len(module) + 1 :].split(".")) if name != module else root
        for file in (os.path.join(stem, "__init__.py"), f"{stem}.py"):
            if file in files:
                spec = spec_from_file_location(name, file, loader=_FromDigest(name, file, files[file]))
                if spec is not None:
                    return spec
        if any(file.startswith(stem + os.sep) for file in files):  # a folder without an __init__.py
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [stem]
            return spec
        uncovered = _there(stem)
        if uncovered:
            raise ImportError(f"{uncovered}, which the digest of the plug-in does not cover; expected a .py file in it")
        raise ModuleNotFoundError(f"No module named {name!r} among the files of the plug-in", name=name)

    def _is_asked_by_plugin(self) -> bool:
        frame = sys._getframe() if self._plugins else None
        while frame is not None:
            if self._plugin_of(frame.f_globals.get("__name__")) is not None:
                return True
            frame = frame.f_back
        return False

    def _of_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """Return where another module is that a plug-in imports, if it belongs to Python or an installed package."""
        for finder in [each for each in sys.meta_path if each is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is None:
                continue
            if spec.has_location and spec.origin is not None and not _is_installed(spec.origin):
                raise ImportError(
                    f"{spec.origin} is no file of the plug-in, so its digest does not cover it, and belongs to no "
                    "installed package; expected a module of the plug-in's own folder (from . import …), or an "
                    "installed one",
                    name=name,
                )
            return spec
        return None


IMPORTS = PluginImports()
sys.meta_path.insert(0, IMPORTS)


def _there(stem: str) -> str:
    """Return what there is in the place of a module that is no file of the plug-in; "": nothing."""
    for suffix in (*EXTENSION_SUFFIXES, *BYTECODE_SUFFIXES, ".py"):
        if os.path.lexists(stem + suffix):
            kinds = {".py": "no file, or new since the plug-in was loaded", ".pyc": "bytecode without its source"}
            return f"{stem}{suffix} is {kinds.get(suffix, 'native code')}"
    return f"{stem} is a link to a folder" if os.path.islink(stem) else ""


def _is_installed(origin: str) -> bool:
    """Whether a file is Python's, Seedbus's or an installed package's."""
    places = {os.path.abspath(origin), os.path.realpath(origin)}
    return any(Path(place).is_relative_to(folder) for place in places for folder in (*_folders(), *_editable()))


@cache
def _folders() -> frozenset[str]:
    """Return the folders of Python, of installed packages and of Seedbus, which may be a folder of links."""
    paths = sysconfig.get_paths()
    seedbus = sys.modules[__name__.partition(".")[0]]
    own = [os.path.join(path, room) for path in seedbus.__path__ for room in ("", *os.listdir(path))]
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), *(path for path in _SEARCHED if os.path.basename(path) in _INSTALLED), *own]
    return frozenset(place for folder in folders for place in (os.path.abspath(folder), os.path.realpath(folder)))


@cache
def _editable() -> frozenset[str]:
    """Return the projects that are installed so that they can be edited (`pip install --editable`)."""
    found = set()
    for distribution in metadata.distributions():
        text = distribution.read_text("direct_url.json")
        facts = json.loads(text) if text else {}
        if facts.get("dir_info", {}).get("editable"):
            found.add(os.path.realpath(unquote(urlsplit(facts["url"]).path)))
    return frozenset(found)
