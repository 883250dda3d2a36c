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
    ("algorithms", [*PARTITIONS.all(), *RULES.all(), *CODECS.all(), *CHANNELS.all()]),
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


def test_the_page_of_participation_names_all_algorithms_that_refuse_late_reports() -> None:
    (paragraph,) = re.findall(r"^\*\*Late reports\*\*.*?\n\n", page("participation"), re.M | re.S)
    refusing = set()
    for name, kind in ALGORITHMS.all().items():
        try:
            refusing |= set() if kind().facts.takes_late else {name}
        except ValidationError:  # a field without a default
            continue
    assert refusing == {name for name in ALGORITHMS.all() if re.search(rf"\b{name}\b", paragraph, re.I)}


def test_the_map_names_the_modules_below_all_layers() -> None:
    assert not [name for name in GROUND if f"`seedbus/{name}.py`" not in page("architecture")]


def test_the_page_of_own_parts_names_what_an_algorithm_of_neither_family_has_to_have_and_what_it_may_override() -> None:
    (section,) = re.findall(r"^## An algorithm of neither family\n(.*?)^## ", page("own-parts"), re.M | re.S)
    needed, optional = (
        {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.rsplit("|", 2)[1])}
        for table in re.findall(r"^\| .*? members \|\n\|---\|---\|\n(.*?)\n\n", section, re.M | re.S)
    )
    contract = {name for each in plugin.Algorithm.__mro__ for name in vars(each) if not name.startswith("_")}
    given = {name for name in contract if hasattr(plugin.BaseAlgorithm, name)}
    needed |= {name.replace("pack_", "unpack_") for name in needed if name.startswith("pack_")}
    assert needed - {"Rule", "unpack_"} == contract - given and (contract & optional) - needed == given


def test_the_base_classes_of_faults_are_named_where_plug_ins_are_described() -> None:
    exported = {name: getattr(plugin, name) for name in plugin.__all__}
    bases = {name for name, each in exported.items() if isinstance(each, type) and issubclass(each, plugin.Fault)}
    (row,) = re.findall(r"^\| fault \|.*$", page("plugins"), re.M)
    assert bases == set(re.findall(r"`(\w*(?:Selector|Fault))`", row)) - {"AvailabilityFault"}
    assert not [name for name in [*bases, "AvailabilityFault"] if name not in row or name not in str(plugin.__doc__)]


def test_a_page_counts_the_promises_that_it_shows() -> None:
    texts = [block.text for each in PAGES for block in blocks(each) if "promises are kept" in block.text]
    shown = [text for text in texts if "…" not in text.splitlines()]  # where lines are left out, none can be counted
    counts = [(int(count), text.count("✓")) for text in shown for count in re.findall(r"all (\d+) promises", text)]
    assert len(counts) > 1
    assert all(stated == printed for stated, printed in counts)
