"""Label flipping: which classes are taken for which, that only the model changes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds import go, scenario

from seedbus.agents.client.relabelling import Relabelling
from seedbus.bus import Kind, read_ledger
from seedbus.models.client_samples import taken_for
from seedbus.models.images.problem import ImageProblem
from seedbus.scenarios.faults.label_flip import LabelFlip
from seedbus.scenarios.running.prepare import bind, relabel

DIGITS: dict[str, Any] = {"name": "digits", "model": "softmax", "batch_size": 8}
DECOMFL: dict[str, Any] = {"name": "decomfl", "perturbations": 3, "learning_rate": 0.01, "smoothing": 0.01}


def flipped(*faults: dict[str, Any], **changes: Any) -> Any:
    lines = [{"fault": "label-flip"} | fault for fault in faults]
    return scenario(**{"task": DIGITS, "algorithm": DECOMFL, "faults": lines, "stop": {"rounds": 6}} | changes)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [3, 2, 1, 0]),
        ({"to": "next"}, [1, 2, 3, 0]),
        ({"pairs": [(0, 3)]}, [3, 1, 2, 3]),
        ({"pairs": [(1, 2), (2, 1)]}, [0, 2, 1, 3]),
    ],
)
def test_a_class_is_taken_for_the_one_that_the_fault_says(fields: Any, expected: list[int]) -> None:
    assert LabelFlip(**fields).new_classes(4).tolist() == expected


def test_several_faults_apply_one_after_the_other_whatever_their_order() -> None:
    faults = [LabelFlip(to="next", clients=[0, 1]), LabelFlip(pairs=[(0, 3)], clients=[1, 2])]

    def taken(client: int, order: list[LabelFlip]) -> list[int] | None:
        new = Relabelling(order, 1, 4)(client, 0, 4)
        return None if new is None else new.tolist()

    assert [taken(client, faults) for client in range(4)] == [[1, 2, 3, 0], [1, 2, 3, 3], [3, 1, 2, 3], None]
    assert taken(1, faults[::-1]) == taken(1, faults)


class _Own:
    def __init__(self, new: Any) -> None:
        self.new = new

    def mislabels(self, client: int, round: int, random: Any) -> bool:
        return True

    def new_classes(self, classes: int) -> Any:
        return self.new


@pytest.mark.parametrize("new", [[2, 1, 0], np.arange(3)[::-1], np.broadcast_to(np.int64(1), 3)])
def test_what_a_fault_of_ones_own_returns_is_taken_whatever_its_memory_is_like(new: Any) -> None:
    relabelled = Relabelling([_Own(new)], 1, 4)(0, 0, 3)
    assert taken_for(torch.tensor([0, 1, 2]), relabelled).tolist() == list(new)


@pytest.mark.slow
def test_the_model_changes_and_the_messages_do_not(tmp_path: Path) -> None:
    honest, taken = go(tmp_path / "honest", flipped()), go(tmp_path / "taken", flipped({"clients": [0, 1, 2, 3]}))
    assert taken.digest != honest.digest and taken.summary["ledger_hash"] == honest.summary["ledger_hash"]
    rows = read_ledger(taken.folder / "messages")
    reports = np.count_nonzero((rows["kind"] == Kind.REPORT) & (rows["sender"] < 4))
    assert taken.summary["faults"] == [{"fault": "label-flip", "mislabelled": reports}]


@pytest.mark.slow
def test_nodes_without_a_server_may_learn_from_wrong_labels(tmp_path: Path) -> None:
    changes = {
        "topology": {"kind": "gossip", "graph": "ring"},
        "algorithm": DECOMFL | {"arithmetic": "integer"},
        "participation": {"clients": 6},
    }
    honest, taken = (go(tmp_path / str(len(who)), flipped({"clients": who}, **changes)) for who in ([], [2, 3]))
    assert taken.digest != honest.digest and taken.summary["ledger_hash"] == honest.summary["ledger_hash"]
    assert taken.summary["faults"] == [{"fault": "label-flip", "mislabelled": 2 * 6}]


def test_a_problem_that_is_given_to_another_run_has_the_labels_of_that_one(tmp_path: Path) -> None:
    honest, taken = flipped(faults=[], stop={"rounds": 1}), flipped({}, stop={"rounds": 1})
    problem = bind(honest)
    first, other, again = (
        go(tmp_path / str(number), what, problem=problem).digest for number, what in enumerate((honest, taken, honest))
    )
    assert first == again != other


@pytest.mark.parametrize("mask", [{}, {"mask": {"rule": "random", "density": 0.1}}], ids=["whole", "masked"])
def test_a_run_without_such_faults_counts_no_classes(mask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = bind(honest := flipped(faults=[], **mask))
    monkeypatch.setattr(ImageProblem, "number_of_classes", property(lambda _: pytest.fail("counted")))
    relabel(honest, problem)
