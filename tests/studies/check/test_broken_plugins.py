"""Plug-ins that break a promise are caught by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from plugin_files import SIGNS, forget

from seedbus.discovery import KINDS, PLUGINS
from seedbus.plugin import load_plugin
from seedbus.studies.check.elsewhere import found_elsewhere, found_of
from seedbus.studies.check.kinds import HOMES, home, subject_of

BROKEN = SIGNS.with_name("broken.py")
NAMES = [
    *(("algorithm", name) for name in "thawed lenient aliased careless unsteady underpaid nosy idle counting".split()),
    *(("algorithm", name) for name in "repeating gapless skipping owning first-come secretive wearing".split()),
    *(("algorithm", name) for name in "averaging misdated trusting shapeless rounding naive local remembering".split()),
    *(("algorithm", name) for name in "numbering hoarding choosy tardy".split()),
    *(("fault", name) for name in "stateful stubborn crowding impostor silent threaded forgetting lossy".split()),
    *(("task", name) for name in "longer shared wandering crowded poor blind steep open".split()),
    *(("partition", name) for name in "wasteful twofold drifting generous".split()),
    *(("codec", name) for name in "dice fat cleaning gullible boasting quantum".split()),
    *(("rule", name) for name in "narrow sorting fading hopeful strict latecomer".split()),
    *(("selection policy", name) for name in "shy backwards touring undeclared hurried resuming".split()),
    *(("tracker", name) for name in "forgetful finite once scribbling".split()),
    *(("law", name) for name in "loose endless downhill lopsided unsettled cramped binary unwritten".split()),
    *(("channel", name) for name in "flickering wide hissing".split()),
]
HASHING = {
    "algorithm": "hashing",
    "task": "hashed",
    "partition": "hashmap",
    "selection policy": "processed",
    "law": "scrambled",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broken() -> Iterator[Any]:
    """The classes of the broken plug-in by (kind, name), and the promise that each breaks."""
    load_plugin(BROKEN)
    plugin = PLUGINS["broken"]
    yield {(kind.noun, name): found for kind in KINDS for name, found in kind.of(plugin).items()}
    forget()


def all_of(module: Any) -> list[Any]:
    return [promise for name in ("CONTRACT", "RUNS", "WORKERS") for promise in getattr(module, name, ())]


@pytest.mark.parametrize(("noun", "name"), NAMES)
def test_what_breaks_a_promise_is_caught_by_it(broken: Any, noun: str, name: str) -> None:
    found, module = broken[noun, name], home(noun)
    promises = {promise.__name__: promise for promise in all_of(module)}
    with pytest.raises(AssertionError) as raised:
        promises[found.breaks](subject_of(noun, found()))
    assert str(raised.value)


def test_every_promise_of_every_kind_is_broken_by_somebody_but_those_of_whole_contracts(broken: Any) -> None:
    assert {pair for pair in broken if hasattr(broken[pair], "breaks")} == {*NAMES, *HASHING.items()}
    caught = {(noun, broken[noun, name].breaks) for noun, name in NAMES}
    promises = {(noun, promise.__name__) for noun in HOMES for promise in all_of(home(noun))}
    assert {name for _, name in promises - caught} == {
        "fields_survive_a_round_trip_as_text",
        "a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere",
        "it_lets_no_replica_diverge",
        "a_run_in_two_worker_processes_ends_as_in_one",
        "two_worker_processes_give_the_same_bits_as_one",
        "a_slope_is_the_gradient_along_a_direction",
        "fedavg_keeps_its_contract_with_it",
        "algorithms_keep_their_contract_with_it",
    }


def test_another_process_finds_what_this_one_finds_unless_it_depends_on_the_process(broken: Any) -> None:
    lying = [(noun, broken[noun, name]()) for noun, name in HASHING.items()]
    honest = [(kind.noun, next(iter(kind.all().values()))()) for kind in KINDS if kind.noun in ("rule", "channel")]
    elsewhere = found_elsewhere([*lying, *honest])
    here = [found_of(noun, subject_of(noun, model)) for noun, model in [*lying, *honest]]
    agree = [one == other for one, other in zip(elsewhere, here, strict=True)]
    assert agree == [False] * len(lying) + [True] * len(honest)
