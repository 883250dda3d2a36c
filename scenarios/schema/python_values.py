"""Fields of scenarios and studies that a Python program gives, as the plain data that a file has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
from pydantic import BaseModel

from seedbus.models.own_code.named import name_of, plugin_of
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.scenario import Scenario, TorchTask


def plain_fields(fields: Mapping[str, Any], source: str, kind: str) -> dict[str, Any]:
    """Return fields that may hold what only Python has as plain data.

    Args:
        fields: as a program gave them.
        source: how error messages name them all.
        kind: what has these fields, such as "scenario".

    Raises:
        ScenarioError: a field has no plain form.
    """
    document: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            document |= json.loads(json.dumps({name: value}, default=_plain))
        except RecursionError:
            raise ScenarioError(source, [f"{name}: it is nested too deeply; a {kind} has a few levels"]) from None
        except (TypeError, ValueError) as error:
            raise ScenarioError(source, [f"{name}: it holds a value that no {kind} has ({error})"]) from None
    return document


def _plain(value: Any) -> Any:
    """Return what JSON knows in the place of a value that only Python has. Raises `TypeError`, `ValueError`."""
    if isinstance(value, Scenario):
        return value.resolved()
    if isinstance(value, TorchTask) and not isinstance(value.network, str):
        raise TypeError(
            "a TorchTask of this process alone; give it as task=…, or {name: torch, network: FILE:function, data: "
            "FILE:function} with --plugin FILE.py or load_plugin"
        )
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, range):
        return list(value)
    if isinstance(value, PurePath):
        return str(value)
    if callable(value) and plugin_of(value) is not None:
        return name_of(value)
    if callable(value):
        named = name_of(value)
        raise TypeError(
            f"{named}, which only this process has; give FILE:{named.rpartition(':')[2]}, with --plugin FILE.py or "
            "load_plugin"
        )
    raise TypeError(f"a {type(value).__name__}")
