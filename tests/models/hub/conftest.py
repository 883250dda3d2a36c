"""Fixtures: tiny models of the real classes, and small data sets in real formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_hub import MODELS, write_hub_model, write_images, write_texts

for package in ("datasets", "peft", "PIL", "transformers"):
    pytest.importorskip(package, reason=f"the task needs {package}")

Make = Callable[..., Any]


@pytest.fixture(scope="session")
def hub_data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a data set of images and one of texts."""
    root = tmp_path_factory.mktemp("hub")
    return {"images": write_images(root / "images"), "texts": write_texts(root / "texts")}


@pytest.fixture(scope="session")
def hub_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a tiny model, written once."""
    written: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in written:
            written[name] = write_hub_model(tmp_path_factory.mktemp(name), name)
        return written[name]

    return folder_of


@pytest.fixture
def described(hub_model: Callable[[str], Path], hub_data: dict[str, Path]) -> Make:
    """A function that returns the fields of a task on a tiny model."""

    def fields_of(name: str, **changes: Any) -> dict[str, Any]:
        head = MODELS[name][0]
        columns = {
            "image-classification": {"image": "image", "label": "label"},
            "sequence-classification": {"text": "sentence", "label": "label"},
            "causal-lm": {"text": "sentence"},
        }[head]
        data = hub_data["images" if "image" in head else "texts"]
        fields = {"name": "hugging-face", "model": str(hub_model(name)), "head": head, "dataset": str(data)}
        return fields | {"columns": columns, "batch_size": 4} | changes

    return fields_of


@pytest.fixture
def make_hub(described: Make) -> Make:
    """A function that makes tasks on tiny models."""
    from seedbus.models.tasks.hugging_face import HuggingFace

    return lambda name, **changes: HuggingFace.model_validate(described(name, **changes))
