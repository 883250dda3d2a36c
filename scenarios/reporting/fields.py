"""The fields of a scenario, each with what it accepts and is, from the classes that define them."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.sentences import models_in

_TYPES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` or `false`"}
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def paths_in_scenarios() -> dict[type[BaseModel], list[str]]:
    """Return all models that are parts of a scenario, each with the paths of the fields that hold it."""
    models: dict[type[BaseModel], list[str]] = {}
    _collect(Scenario, "", models)
    return models


def _collect(model: type[BaseModel], path: str, models: dict[type[BaseModel], list[str]]) -> None:
    """Add the paths in a scenario at which this model, and the models of its fields, are found."""
    models.setdefault(model, []).append(path)
    for name, field in model.model_fields.items():
        for nested in models_in(field):
            _collect(nested, f"{path}.{name}".lstrip("."), models)


def rows_of(model: type[BaseModel]) -> list[list[str]]:
    """Return for each field its name, what it accepts, its default, and what it is, in Markdown."""
    properties, rows = model.model_json_schema()["properties"], []
    for name, field in model.model_fields.items():
        name = field.alias or name
        accepts, what = _accepts(properties[name]), field.description or "which it is"
        rows.append([f"`{name}`", accepts, _plain(field.default), what])
    return rows


def _accepts(schema: dict[str, Any]) -> str:
    """Describe the values that a property of a JSON Schema accepts."""
    if "const" in schema or "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("format") == "plugin:function":
        return "plugin:function"
    if "anyOf" in schema:
        return " or ".join(_accepts(each) for each in schema["anyOf"])
    if "prefixItems" in schema:
        return f"[{', '.join(_accepts(each) for each in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        return f"list of {_accepts(schema['items'])}"
    if "$ref" in schema.get("additionalProperties", {}):
        return "a mapping from names, see below"
    if schema.get("additionalProperties", {}) == {"type": "string"}:
        return "a mapping from names to text"
    if not {"anyOf", "items"}.isdisjoint(schema.get("additionalProperties", {})):
        return f"a mapping from names to {_accepts(schema['additionalProperties'])}"
    if "additionalProperties" in schema and schema.get("type") == "object":
        return "a schedule, from round to value"
    if schema.get("type") == "null":
        return "nothing"
    bounds = " and ".join(f"{sign} {schema[name]:,}" for name, sign in _BOUNDS.items() if name in schema)
    return f"{_TYPES.get(schema.get('type', ''), 'see below')} {bounds}".strip()


def _plain(default: Any) -> str:
    if default is PydanticUndefined:
        return "required"
    if not isinstance(default, BaseModel):
        return f"`{json.dumps(default, ensure_ascii=False)}`"
    changed = {name: getattr(default, name) for name in default.model_fields_set}
    return f"{type(default).__name__.lower()}" + "".join(f", `{name}: {value}`" for name, value in changed.items())
