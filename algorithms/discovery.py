"""Finds what a folder defines: a new algorithm, method, task or fault is a new file, and nobody keeps a list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, BeforeValidator, Field


def discover(package_name: str, tag: str) -> dict[str, type[Any]]:
    """The pydantic models that a package's modules define, by the one value that their field `tag` accepts, sorted."""
    package = importlib.import_module(package_name)
    found: dict[str, type[BaseModel]] = {}
    for info in pkgutil.iter_modules(package.__path__, prefix=f"{package_name}."):
        if info.ispkg:
            continue
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == info.name:
                field: Any = value.model_fields.get(tag)
                if field is not None and isinstance(field.default, str):
                    found[field.default] = value
    return dict(sorted(found.items()))


def choice(found: Mapping[str, type[Any]], tag: str) -> Any:
    """The type of a field that holds one of these models. A bare word is the one of that name with its defaults."""

    def named(value: Any) -> Any:
        return {tag: value} if isinstance(value, str) else value

    models = tuple(found.values())
    described: Any = Annotated[Union[models], Field(discriminator=tag)] if len(models) > 1 else models[0]  # noqa: UP007
    word: Any = Literal[tuple(found)]
    return Annotated[described, BeforeValidator(named, json_schema_input_type=word | described)]
