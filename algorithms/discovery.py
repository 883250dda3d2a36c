"""Finds what a folder defines: a new algorithm, method or fault is a new file, and nobody keeps a list."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from pydantic import BaseModel


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
