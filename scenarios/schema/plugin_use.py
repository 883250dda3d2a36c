"""Which plug-ins a scenario needs, and whether this process has them.

A scenario names them with the digests of their sources. It never loads one: that is up to each process's own user.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from seedbus.discovery import PLUGINS
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.sentences import quoted

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{32}")


def needed(scenario: BaseModel) -> dict[str, str]:
    """Return the plug-ins whose classes a scenario uses: name → digest of the source."""
    models = list(_models(scenario))
    classes = {kind for model in models for kind in (type(model), getattr(model, "method", None))}
    names = {name for model in models for name in getattr(model, "plugin_names", ())}
    return {
        name: plugin.digest
        for name, plugin in sorted(PLUGINS.items())
        if name in names or not classes.isdisjoint(plugin.classes)
    }


def refuse_missing(plugins: Mapping[str, str]) -> None:
    """Raise ValueError unless this process has loaded these plug-ins; plugins: name → digest of the source."""
    for name, digest in plugins.items():
        if not (_NAME.fullmatch(name) and _DIGEST.fullmatch(digest)):
            raise ValueError(
                f"plugins: {quoted({name: digest})} is not accepted; expected a plug-in's name and the digest of its "
                "source, 32 hexadecimal digits, as `seedbus list plugins` prints them"
            )
        if name not in PLUGINS:
            raise ValueError(
                f"plugins.{name}: this process has not loaded that plug-in (source digest {digest}); give its "
                f"file or folder, named {name}, by --plugin PATH, SEEDBUS_PLUGINS, or seedbus.plugin.load_plugin "
                "in Python"
            )
        own = PLUGINS[name]
        if own.digest != digest:
            raise ValueError(
                f"plugins.{name}: another source is needed than {own.path or 'the one in this process'}: "
                f"digest {digest}, and this one's is {own.digest}"
            )


def refuse_local(plugins: Iterable[str]) -> None:
    """Raise `ScenarioError` if one of these plug-ins exists in this process alone, so that no other can have it."""
    for name in plugins:
        if PLUGINS[name].module is None:
            raise ScenarioError(
                f"the class {name}",
                [
                    "it is known in this process alone; worker processes and studies need it in a file, for --plugin "
                    "or load_plugin"
                ],
            )


def proof(plugins: Mapping[str, str]) -> bytes:
    """Return what a process shows of its plug-ins when it joins, 16 bytes; empty if the scenario needs none."""
    text = "".join(f"{name} {digest}\n" for name, digest in sorted(plugins.items()))
    return hashlib.blake2b(text.encode(), digest_size=16).digest() if plugins else b""


def _models(value: Any) -> Iterator[BaseModel]:
    """Yield a model and all models in its fields."""
    if isinstance(value, BaseModel):
        yield value
        for name in type(value).model_fields:
            yield from _models(getattr(value, name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _models(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _models(each)
