"""What the documents list and count is what the code has."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from document_blocks import ROOT

from seedbus.agents.policies.selection.selection import SELECTIONS
from seedbus.algorithms.aggregation.rules import RULES
from seedbus.algorithms.dense.channels.contract import CHANNELS
from seedbus.algorithms.dense.compression.contract import CODECS
from seedbus.algorithms.dense.methods.method import METHODS
from seedbus.models.partition import PARTITIONS
from seedbus.models.task import TASKS
from seedbus.models.text.prompts import PROMPTS
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.launchers.named import LAUNCHERS
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.tracking.tracker import TRACKERS

PAGE_OF: list[tuple[str, Iterable[str]]] = [
    ("faults", FAULTS.all()),
    ("tasks", TASKS.all()),
    ("dense", METHODS.all()),
    ("algorithms", ALGORITHMS.all().keys() - METHODS.all().keys() - {"fedavg"}),
    ("algorithms", [*RULES.all(), *CODECS.all(), *CHANNELS.all()]),
    ("partitions", PARTITIONS.all()),
    ("participation", SELECTIONS.all()),
    ("clusters", LAUNCHERS.all()),
    ("trackers", TRACKERS.all()),
    ("language-models", PROMPTS),
]


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "things"), PAGE_OF, ids=[name for name, _ in PAGE_OF])
def test_a_page_names_all_of_the_kind_that_it_describes(name: str, things: Iterable[str]) -> None:
    text = page(name).lower()
    assert not [thing for thing in things if not re.search(rf"(?<![\w-]){thing}(?![\w-])", text)]
