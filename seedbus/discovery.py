"""Finds the classes in a folder's files: a new algorithm, method, task, fault or policy is a new file and nothing else.

This module stands below all layers and imports none of them but by name, when it is asked to look into one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, BeforeValidator, Field


def discover(package_name: str, tag: str) -> dict[str, type[Any]]:
    """Return the pydantic models that a package's modules define, by the default of their field `tag`, sorted.

    Args:
        package_name: dotted name of the package; its sub-packages are not searched.
        tag: a field whose default is the model's name, a string; models without it are left out.
    """
    package = importlib.import_module(package_name)
    models: dict[str, type[BaseModel]] = {}
    for info in pkgutil.iter_modules(package.__path__, prefix=f"{package_name}."):
        if info.ispkg:
            continue
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == info.name:
                field: Any = value.model_fields.get(tag)
                if field is not None and isinstance(field.default, str):
                    models[field.default] = value
    return dict(sorted(models.items()))


def choice(models: Mapping[str, type[Any]], tag: str) -> Any:
    """Return the type of a field that holds one of these models.

    The field also accepts a bare name, which stands for the model of that name with its defaults.

    Args:
        models: name → model, as from `discover`.
        tag: the field of the models that holds their name.
    """

    def named(value: Any) -> Any:
        return {tag: value} if isinstance(value, str) else value

    kinds = tuple(models.values())
    model: Any = Annotated[Union[kinds], Field(discriminator=tag)] if len(kinds) > 1 else kinds[0]  # noqa: UP007
    name: Any = Literal[tuple(models)]
    return Annotated[model, BeforeValidator(named, json_schema_input_type=name | model)]
