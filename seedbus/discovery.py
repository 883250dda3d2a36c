"""Finds the variants of each kind: a new algorithm, method, task, fault or policy is one new file and nothing else.

A kind is a `Variants`: the classes of a folder of the package, and those of the plug-ins that were loaded. A field of a
scenario that accepts any of them is annotated with it: `Annotated[Task, TASKS]`.

This module stands below all layers and imports none of them but by name, when it is asked to look into one.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema


class PluginError(Exception):
    """A class, nearly always a plug-in's, has returned what its kind does not allow. The run cannot go on."""


def check_shape(found: object, shape: tuple[int, ...], what: str) -> None:
    """Raise `PluginError` unless what a class returned is an array of numbers of this shape; what: what returned it."""
    actual = getattr(found, "shape", None)
    kind = getattr(getattr(found, "dtype", None), "kind", "f")  # a tensor's type has none, and is one of numbers
    if actual != shape or kind not in "fiu":
        is_array = isinstance(actual, tuple)
        found_here = f"an array {list(actual)} of {found.dtype}" if is_array else type(found).__name__  # type: ignore
        raise PluginError(f"{what} returned {found_here}; expected numbers {list(shape)}")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A module from outside the package whose classes are variants.

    Attributes:
        name: by which scenarios name it.
        path: the file or folder that other processes can load; "" if it is installed, or defined in this process alone.
        digest: hexadecimal digest of its source.
        classes: the models that it defines.
        module: its module; None for a class that was defined in this process alone.
    """

    name: str
    path: str
    digest: str
    classes: Sequence[type[BaseModel]]
    module: ModuleType | None = None

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """The plug-in's own public functions and classes by name."""
        values = {} if self.module is None else vars(self.module)
        return {
            name: each
            for name, each in values.items()
            if callable(each) and not name.startswith("_") and getattr(each, "__module__", "") == values["__name__"]
        }


def plugin_sources(place: Path) -> dict[str, bytes]:
    """Return the files of the plug-in that is a file or a folder, by their paths relative to the folder above it.

    These are all that can be imported of it. Of a link to a file it is the file's content; linked folders are left out.
    """
    files = sorted(path for path in place.rglob("*.py") if path.is_file()) if place.is_dir() else [place]
    return {path.relative_to(place.parent).as_posix(): path.read_bytes() for path in files}


def source_digest(sources: Mapping[str, bytes]) -> str:
    """Return a digest of sources and their names, 32 hexadecimal digits."""
    state = hashlib.blake2b(digest_size=16)
    for name, content in sources.items():
        state.update(f"{name} {len(content)}\n".encode() + content)
    return state.hexdigest()


def classes_in(module: ModuleType) -> list[type[BaseModel]]:
    """Return the pydantic models that a module itself defines."""
    values = [value for value in vars(module).values() if isinstance(value, type)]
    return [each for each in values if issubclass(each, BaseModel) and each.__module__ == module.__name__]


PLUGINS: dict[str, Plugin] = {}
"""The plug-ins that this process has loaded, by name."""

KINDS: list[Variants] = []
"""All kinds of variants whose modules have been imported."""


class Variants:
    """The classes of one kind, by the names that select them in a scenario.

    Attributes:
        noun: what one of them is called in sentences.
        tag: the field whose default, a string, is a class's name.
        accepts: whether a class is one of them.
        states: what is stated of one of them.
    """

    def __init__(
        self,
        noun: str,
        tag: str,
        package: str,
        base: type[Any] | Callable[[type[Any]], bool],
        *,
        derived: Callable[[], Mapping[str, type[Any]]] | None = None,
        is_short: bool = False,
        is_open: bool = True,
        states: Callable[[Any], Iterable[Any]] | None = None,
    ) -> None:
        """Define a kind.

        Args:
            noun: what one of them is called in sentences.
            tag: the field whose default is a class's name.
            package: dotted name of the package or module in which the own ones are; sub-packages are not searched.
            base: the class that all of them extend, or a function that tells whether a class is one of them.
            derived: returns further classes by name, which are made from those of another kind.
            is_short: whether a bare name stands for the class of that name with its defaults, also in Python.
            is_open: whether plug-ins may define further ones.
            states: returns what is stated of one of them (seedbus/capabilities.py); default: its own `capabilities`.
        """
        self.noun, self.tag = noun, tag
        self.accepts = (lambda each: issubclass(each, base)) if isinstance(base, type) else base
        self._package, self._derived, self._is_short = package, derived, is_short
        self.states = states or (lambda each: each.capabilities())
        if is_open:
            KINDS.append(self)

    @property
    def plural(self) -> str:
        """What several of them are called."""
        noun = self.noun.replace(" ", "-")
        return f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"

    def all(self) -> dict[str, type[Any]]:
        """Return all of them by name, sorted."""
        derived = {} if self._derived is None else dict(self._derived())
        loaded = {name: kind for plugin in PLUGINS.values() for name, kind in self.of(plugin).items()}
        return dict(sorted((self._own | derived | loaded).items()))

    def of(self, plugin: Plugin) -> dict[str, type[Any]]:
        """Return those that a plug-in defines, by name."""
        return dict(self.named(plugin.classes))

    @cached_property
    def _own(self) -> dict[str, type[Any]]:
        package = importlib.import_module(self._package)
        found = pkgutil.iter_modules(getattr(package, "__path__", []), prefix=f"{self._package}.")
        modules = [package, *(importlib.import_module(info.name) for info in found if not info.ispkg)]
        pairs = [pair for module in modules for pair in self.named(classes_in(module))]
        return dict(sorted(pairs, key=lambda pair: len(pair[1].__mro__)))  # one that extends another of its name wins

    def named(self, classes: Iterable[type[BaseModel]]) -> Iterator[tuple[str, type[Any]]]:
        """Yield those of some models that are of this kind, each with its name."""
        for each in classes:
            named = each.model_fields.get(self.tag)
            if named is not None and isinstance(named.default, str) and self.accepts(each):
                yield named.default, each

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a field that holds one of them, in the place of the annotated base class's."""
        models = self.all()
        kinds = tuple(models.values())
        model: Any = Annotated[Union[kinds], Field(discriminator=self.tag)] if len(kinds) > 1 else kinds[0]  # noqa: UP007
        if self._is_short:
            names: Any = Literal[tuple(models)]
            model = Annotated[model, BeforeValidator(self._expanded, json_schema_input_type=names | model)]
        return handler.generate_schema(model)

    def _expanded(self, value: Any) -> Any:
        return {self.tag: value} if isinstance(value, str) else value
