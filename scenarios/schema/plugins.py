"""Loads plug-ins: modules from outside the package whose algorithms, tasks, faults and so on scenarios may name.

A plug-in is code, so only the user of a process loads one into it: by `--plugin`, by SEEDBUS_PLUGINS, as an installed
package with an entry point in the group `seedbus.plugins`, or in Python by `seedbus.plugin`.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

import seedbus.scenarios.tracking.tracker  # noqa: F401, a kind that no scenario names
from seedbus.algorithms.capabilities import Facts
from seedbus.algorithms.contract import Algorithm
from seedbus.discovery import KINDS, PLUGINS, Plugin, Variants, classes_in, plugin_sources, source_digest
from seedbus.scenarios.errors import ScenarioError, not_accepted, path_of, with_type
from seedbus.scenarios.schema import plugin_imports
from seedbus.scenarios.schema.discovery import ALGORITHMS, lacking
from seedbus.scenarios.schema.plugin_imports import IMPORTS, PREFIX
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.sentences import models_in

VARIABLE = "SEEDBUS_PLUGINS"
GROUP = "seedbus.plugins"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_FILE = "expected a Python file, or a folder with an __init__.py"

_IMPORTING = (plugin_imports.__file__, importlib.__file__, "<frozen importlib")  # whose lines no user looks for

ClassT = TypeVar("ClassT", bound=type[BaseModel])
T = TypeVar("T")


def load_plugins(paths: Iterable[str | Path]) -> None:
    """Load the plug-ins of this process's user: of installed packages, of SEEDBUS_PLUGINS, and these files.

    Raises:
        ScenarioError: a plug-in does not import, defines nothing, or clashes with another name.
    """
    for point in metadata.entry_points(group=GROUP):
        load_module(point.value, f"the plug-in {point.name} of {point.dist.name if point.dist else 'a package'}")
    for named in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        load_plugin(named, f"{VARIABLE}, {named}")
    for path in paths:
        load_plugin(path, f"--plugin {path}")


def load_plugin(path: str | Path, source: str = "") -> None:
    """Load a plug-in, unless it has been loaded already.

    Args:
        path: a Python file, or a folder with an `__init__.py`; its name without the suffix is the plug-in's.
        source: how error messages name it; default: by its path.

    Raises:
        ScenarioError: it does not import, defines nothing, or clashes with another name.
    """
    place, source = path_of(path, source or "path", _FILE.removeprefix("expected ")), source or str(path)
    file = place / "__init__.py" if os.path.isdir(place) else place  # Path.is_dir raises for what it may not see
    name = place.stem
    if not os.path.isfile(file):
        raise ScenarioError(source, [f"there is no such file; {_FILE}"])
    if file.suffix != ".py":
        raise ScenarioError(source, [f"it is not Python; {_FILE}"])
    if not _NAME.fullmatch(name):
        raise ScenarioError(
            source, [f"{name!r} cannot name a plug-in; expected a letter, then letters, digits, _ and -"]
        )
    try:
        files = plugin_sources(place)
    except OSError as error:
        raise ScenarioError(source, [f"it cannot be read ({error.strerror}); {_FILE}"]) from None
    loaded, path, digest = PLUGINS.get(name), str(place.resolve()), source_digest(files)
    if loaded is None or (loaded.path, loaded.digest) != (path, digest):
        _load(Plugin(name, path, digest, []), PREFIX + name, place, files, source)


def load_module(name: str, source: str = "") -> None:
    """Load a plug-in that is installed, unless it has been loaded; name: its module. Raises `ScenarioError`."""
    source = source or f"the module {name}"
    if name in PLUGINS:
        return
    if name in sys.modules:  # the program has imported it before
        place = _place_of(sys.modules[name].__spec__, source)
    else:
        place = _place_of(_run(lambda: find_spec(name) or importlib.import_module(name).__spec__, source), source)
    files = plugin_sources(place)
    own = {str(Path(path).relative_to(place.name)) if place.is_dir() else path: text for path, text in files.items()}
    plugin = Plugin(name, "", source_digest(own), [])
    if name in sys.modules:
        _add([_with_classes(plugin, sys.modules[name])], source)
    else:
        _load(plugin, name, place, files, source)


def _load(plugin: Plugin, module: str, place: Path, files: Mapping[str, bytes], source: str) -> None:
    """Import a plug-in from the files of its digest, and make it known.

    Args:
        plugin: it, without its module.
        module: the name of its module.
        place: its file or folder.
        files: the content of its files, by their paths relative to the folder above it.
        source: how error messages name it.

    Raises:
        ScenarioError: it does not import, defines nothing, or clashes with another name.
    """
    before = _taken_out(module)
    earlier = IMPORTS.add(module, place, files)
    try:
        _run(lambda: importlib.import_module(module), source)
        _add([_with_classes(plugin, sys.modules[module])], source)
    except BaseException:
        _taken_out(module)
        sys.modules.update(before)
        IMPORTS.put_back(module, earlier)
        raise


def _with_classes(plugin: Plugin, module: ModuleType) -> Plugin:
    return replace(plugin, classes=_classes(module), module=module)


def _place_of(spec: ModuleSpec | None, source: str) -> Path:
    """Return the file or folder of an installed plug-in. Raises `ScenarioError` if it is no source."""
    origin = "" if spec is None or spec.origin is None else spec.origin
    if not origin.endswith(".py"):
        found = f"{origin or 'a folder without an __init__.py'} is no Python file, so no digest covers it"
        raise ScenarioError(source, [f"{found}; {_FILE}"])
    return Path(origin).parent if os.path.basename(origin) == "__init__.py" else Path(origin)


def register(kind: ClassT) -> ClassT:
    """Make a class known that lies in no plug-in file, as in a notebook; a decorator.

    The class is a plug-in of its own. It replaces an earlier one of its name, so that a notebook's cell may be run
    again. Worker processes cannot have it: runs with those need a file.

    Raises:
        ScenarioError: the class is of no kind, or clashes with a name of another plug-in or of Seedbus.
    """
    given: object = kind
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise not_accepted(given, "register", "a class that extends one of seedbus.plugin")
    try:
        text = inspect.getsource(kind)
    except (OSError, TypeError):
        text = repr(kind.model_json_schema())
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    before = PLUGINS.pop(kind.__name__, None)
    if before is not None and before.module is not None:
        PLUGINS[before.name] = before
    _add([Plugin(kind.__name__, "", digest, [kind])], f"the class {kind.__name__}")
    return kind


def plugin_line(error: BaseException) -> str | None:
    """Return where a line of a plug-in raised an error, and the error, in one sentence; None if no such line did.

    Of several lines it is the innermost: what the plug-in called from there may be anybody's code. An error of a full
    or broken disk is nobody's.
    """
    names = tuple(f"{plugin.module.__name__}." for plugin in PLUGINS.values() if plugin.module is not None)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return None
    for raised in (error, error.__cause__):
        frames = [] if raised is None else list(traceback.walk_tb(raised.__traceback__))
        for frame, line in reversed(frames):
            if f"{frame.f_globals.get('__name__')}.".startswith(names):
                file = os.path.relpath(frame.f_code.co_filename) if _is_below(frame.f_code.co_filename) else ""
                place = f"{file or frame.f_code.co_filename}, line {line}, in {frame.f_code.co_name}"
                return f"{place}: {_in_words(raised)}"
    return None


def _is_below(file: str) -> bool:
    """Whether a file lies below the current directory, if there still is one."""
    try:
        return Path(file).resolve().is_relative_to(Path.cwd())
    except OSError:
        return False


def _in_words(error: BaseException | None) -> str:
    """Return an error's type and its message in one line, of some 300 characters at most."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # the plug-in's own error may be unable to say anything
        text = ""
    text = text if len(text) <= 300 else f"{text[:299]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _taken_out(name: str) -> dict[str, ModuleType]:
    """Remove a module, and those inside it, from the imported ones; return them. Others are imported in their place."""
    names = [each for each in sys.modules if each == name or each.startswith(f"{name}.")]
    return {each: sys.modules.pop(each) for each in names}


def _classes(module: ModuleType) -> list[type[BaseModel]]:
    """Return the models that a module or one of its package's modules defines."""
    inner = [each for name, each in sys.modules.items() if name.startswith(f"{module.__name__}.")]
    return [kind for each in (module, *inner) for kind in classes_in(each)]


def _run(load: Callable[[], T], source: str) -> T:
    """Import a module; an error in it is one sentence that names its line. Raises `ScenarioError`."""
    try:
        return load()
    except ScenarioError:
        raise
    except SyntaxError as error:
        raise ScenarioError(source, [f"line {error.lineno}: it is not Python ({error.msg})"]) from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = next((each for each in reversed(frames) if not each.filename.startswith(_IMPORTING)), frames[-1])
        what = with_type(error)
        raise ScenarioError(
            source, [f"it cannot be imported: {frame.filename}, line {frame.lineno}: {what}"]
        ) from error


def _add(plugins: Sequence[Plugin], source: str) -> None:
    """Make plug-ins known, all or none. Raises `ScenarioError`."""
    for plugin in plugins:
        problems = [] if plugin.name not in PLUGINS else [f"another plug-in has the name {plugin.name}"]
        problems = problems or _clashes(plugin) or _twice(plugin) or _flaws(plugin)
        if problems:
            raise ScenarioError(source, problems)
        PLUGINS[plugin.name] = plugin
    try:
        _rebuild(Scenario, set())
    except Exception as error:
        for plugin in plugins:
            del PLUGINS[plugin.name]
        _rebuild(Scenario, set())
        raise ScenarioError(source, [f"its classes have no schema: {str(error).partition(chr(10))[0]}"]) from error


def _clashes(plugin: Plugin) -> list[str]:
    """Return a sentence for each name of a plug-in that something else has already."""
    taken = {kind.noun: {name: owner(found) for name, found in kind.all().items()} for kind in KINDS}
    taken["method"] |= taken["algorithm"]  # each method is also an algorithm
    return [
        f"the {kind.noun} {name} clashes with that of {taken[kind.noun][name]}; give it another name"
        for kind in KINDS
        for name in kind.of(plugin)
        if name in taken[kind.noun]
    ]


def _twice(plugin: Plugin) -> list[str]:
    """Return a sentence for each name that several of a plug-in's classes of one kind have: only one would count."""
    flaws = []
    for kind in KINDS:
        classes = defaultdict[str, list[str]](list)
        for name, each in kind.named(dict.fromkeys(plugin.classes)):  # an alias is no second class
            classes[name].append(each.__name__)
        flaws += [
            f"the classes {' and '.join(names)} have the same name, {name}; give each {kind.noun} its own"
            for name, names in classes.items()
            if len(names) > 1
        ]
    return flaws


def owner(kind: type[BaseModel]) -> str:
    """Return whose a class is: a plug-in's name, or Seedbus."""
    classes = {kind, getattr(kind, "method", kind)}
    return next((plugin.name for plugin in PLUGINS.values() if not classes.isdisjoint(plugin.classes)), "Seedbus")


def _flaws(plugin: Plugin) -> list[str]:
    """Return what keeps a plug-in's classes from being used."""
    found = [(kind, name, each) for kind in KINDS for name, each in kind.of(plugin).items()]
    flaws = []
    for kind, name, each in found:
        missing: frozenset[str] = getattr(each, "__abstractmethods__", frozenset())
        missing |= lacking(each) if kind is ALGORITHMS else frozenset()
        if missing:
            flaws.append(f"the {kind.noun} {name} does not define {', '.join(sorted(missing))}")
        for hook, other in getattr(each, "paired_hooks", {}).items():
            if hasattr(each, hook) and not hasattr(each, other):
                flaws.append(f"the {kind.noun} {name} defines {hook} and not {other}; expected both, or neither")
        for field, info in each.model_fields.items():
            takes_any = any(isinstance(part, Variants) for part in info.metadata)
            if inspect.isabstract(info.annotation) and not takes_any:
                flaws.append(
                    f"the field {field} of the {kind.noun} {name} is a {info.annotation.__name__}, which no file can "
                    "give; expected a class that extends it, or for any rule Aggregation"
                )
        for owner, own in [(base, own) for base in each.__mro__ if _is_own(base) for own in vars(base)]:
            if (wrong := _misfit(owner, own, kind is ALGORITHMS)) is not None:
                flaws.append(f"{own} of the {kind.noun} {name} {wrong}")
        if get_args(each.model_fields[kind.tag].annotation) != (name,):
            field = f'{kind.tag}: Literal["{name}"] = "{name}"'
            flaws.append(f"the {kind.noun} {name} does not have its name as its only one; expected the field {field}")
    if not found and not plugin.functions:
        nouns = ", ".join(sorted(kind.noun for kind in KINDS))
        flaws.append(f"it defines nothing that a scenario could name; expected a class of one of these kinds: {nouns}")
    return flaws


_ELSEWHERE = {each.name: f"in `facts`: replace(super().facts, {each.name}=…)" for each in fields(Facts)} | {
    "report_bytes": "`sizes`, which returns Sizes",
    "most_bytes": "`sizes`, which returns Sizes",
    "state_bytes": "`sizes`, which returns Sizes",
    "evaluation_point": "`point`, which takes the newest commit",
    "evaluation_fill": "in `facts`: replace(super().facts, is_widened=True)",
    "shaped": "`sized`, which takes the shapes",
    "pack_log": "`pack_commits`, which takes `whole`",
    **dict.fromkeys(("evaluations", "scalars", "count_scalars"), "`work`, which returns Work"),
    "fewest_reports": "in `facts`, as that of its `rule`",
    "reachable": "in `facts`: replace(super().facts, channel=…)",
    "max_norm": "in `facts`: replace(super().facts, channel=…)",
    "silent": "`of_numbers`, which takes the plan",
    "read_together": "`read_reports`",
    "informed": "`plan`, which takes the server's state",
    "pending": "`commits_after` in `apply`, or `newest_after` and in `facts`: replace(super().facts, is_dense=True)",
    "aggregate_sum": "`aggregate`, which takes a Total for the reports",
    "aggregate_each": "`aggregate`, which takes None for the reports",
}
"""What an algorithm had as a member of its own, and where it says that now."""


def _is_own(base: type) -> bool:
    """Whether a base class is of a plug-in."""
    return not base.__module__.startswith(("seedbus.", "pydantic", "builtins", "abc", "typing"))


def _misfit(kind: type, name: str, is_algorithm: bool) -> str | None:
    """Return how a member of a class cannot stand for that of Seedbus which it overrides; None if it can."""
    bases = [*kind.__mro__[1:], *(Algorithm.__mro__ if is_algorithm else ())]
    if is_algorithm and name in _ELSEWHERE and not any(name in vars(base) for base in bases):
        return f"is no member of an algorithm; expected {_ELSEWHERE[name]}"
    own = vars(kind)[name]
    for base in bases:
        if not (base.__module__.startswith("seedbus.") and name in vars(base)):
            continue
        theirs = vars(base)[name]
        if isinstance(theirs, property) and inspect.isfunction(own):
            return "is a function; expected a property (@property above it)"
        if inspect.isfunction(theirs) and isinstance(own, property):
            return "is a property; expected a function"
        if inspect.isfunction(theirs) and inspect.isfunction(own) and not _takes(own, theirs):
            return f"takes {_parameters(own)}; expected {_parameters(theirs)}"
        return None
    return None


def _takes(own: Callable[..., Any], theirs: Callable[..., Any]) -> bool:
    """Whether a function can be called with all parameters of another, and with those alone that it needs."""
    parameters = inspect.signature(theirs).parameters.values()
    for given in (parameters, [each for each in parameters if each.default is each.empty]):
        positional = [each.name for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        keywords = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
        try:
            inspect.signature(own).bind(*positional, **keywords)
        except TypeError:
            return False
    return True


def _parameters(function: Callable[..., Any]) -> str:
    """Return a function's parameters without their types, such as `(self, block, is_last_step)`."""
    signature = inspect.signature(function)
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _rebuild(model: type[BaseModel], done: set[type[BaseModel]]) -> None:
    """Build the schemas of a model and of all models in its fields anew, the inner ones first."""
    done.add(model)
    for field in model.model_fields.values():
        for nested in models_in(field):
            if nested not in done:
                _rebuild(nested, done)
    model.model_rebuild(force=True)
