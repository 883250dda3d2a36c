"""Payloads of dense algorithms: what is accepted survives a round trip, and what is not is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from algorithm_cases import bits, make, over_the_wire

from seedbus import pieces
from seedbus.algorithms.contract import BadPayload
from seedbus.algorithms.dense import payloads as wire
from seedbus.algorithms.dense.payloads import DenseCommit, DensePlan, DenseReport

D = 5
CODEC: Any = make("fedavg").sized(D)._codec
X = np.linspace(-1, 1, D).astype(np.float32)
RATE = np.float32(0.1)


@pytest.mark.parametrize(("steps", "epochs"), [(1, 0), (0, 1), (2**16 - 1, 0), (0, 2**16 - 1)])
def test_a_plan_of_one_to_65_535_steps_or_epochs_survives_a_round_trip(steps: int, epochs: int) -> None:
    plan = DensePlan(3, 2, steps, epochs, float(RATE))
    packed = wire.pack_plan(plan)
    assert wire.unpack_plan(over_the_wire(packed.body), 3, 2) == plan and (packed.scalars, packed.seeds) == (0, 0)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (None, "a plan is not steps, epochs and a rate"),
        ([1, 0], "a plan is not"),
        ([True, 0, RATE.tobytes()], "a plan is not"),
        ([0, 0, RATE.tobytes()], "a plan of 0 local steps and 0 epochs"),
        ([1, 1, RATE.tobytes()], "a plan of 1 local steps and 1 epochs"),
        ([-1, 2, RATE.tobytes()], "a plan of -1"),
        ([2**16, 0, RATE.tobytes()], "a plan of 65536"),
        ([1, 0, RATE.tobytes()[:3]], "rate is not one finite number"),
        ([1, 0, RATE.tobytes() * 2], "rate is not one finite number"),
        ([1, 0, np.float32("nan").tobytes()], "rate is not one finite number"),
    ],
)
def test_a_malformed_plan_is_refused(body: Any, complaint: str) -> None:
    with pytest.raises(BadPayload, match=complaint):
        wire.unpack_plan(body, 0, 0)


@pytest.mark.parametrize("has_norms", [False, True])
@pytest.mark.parametrize("measured", [0, 1, 3])
@pytest.mark.parametrize("samples", [1, 2**32 - 1])
def test_a_report_has_norms_and_numbers_where_they_are_needed(has_norms: bool, measured: int, samples: int) -> None:
    report = wire.encode_report(CODEC, [X, -2 * X], X[:measured], samples, 7, has_norms=has_norms)
    packed = wire.pack_report(report, CODEC)
    received = wire.unpack_report(over_the_wire(packed.body), CODEC, 2, measured, D, has_norms=has_norms)
    assert isinstance(received, DenseReport) and bits(received) == bits(report)
    assert received.samples == samples and received.measured.tolist() == X[:measured].tolist()
    assert received.norms.tolist() == pytest.approx(
        [float(np.linalg.norm(X)), 2 * float(np.linalg.norm(X))][: 2 * has_norms]
    )
    assert packed.scalars == 2 * D + measured + 2 * has_norms == len(b"".join(map(_bytes, packed.body))) // 4


def _bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else b"".join(map(_bytes, part)) if isinstance(part, list) else b""


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({0: 0}, "a report of 0 samples and 2 vectors"),
        ({0: 2**32}, "a report of 4294967296 samples"),
        ({0: True}, "a report is not a number of samples"),
        ({1: []}, "a report of 1 samples and 0 vectors"),
        ({2: b""}, "a field that is not 8 bytes"),
        ({3: bytes(16)}, "a field that is not 12 bytes"),
        ({3: 0.5}, "a report is not a number of samples"),
    ],
)
def test_a_malformed_report_is_refused(changes: dict[int, Any], complaint: str) -> None:
    report = wire.encode_report(CODEC, [X, X], X[:3], 1, 7, has_norms=True)
    body = wire.pack_report(report, CODEC).body
    wrong = [changes.get(place, part) for place, part in enumerate(body)]
    for malformed in (wrong, body[:3], [*body, b""], None):
        with pytest.raises(BadPayload, match=complaint if malformed is wrong else "a report is not"):
            wire.unpack_report(malformed, CODEC, 2, 3, D, has_norms=True)


@pytest.mark.parametrize("with_model", [False, True])
def test_a_commit_has_its_model_for_those_alone_that_are_given_it(with_model: bool) -> None:
    log = [
        DenseCommit(1, 0, (X, -X), 2 * X),
        DenseCommit(2**32 - 1, 2**32 - 1, (X, X)),
    ]
    packed = wire.pack_commits(log, with_model=with_model)
    first, last = wire.unpack_commits(over_the_wire(packed.body), 2, D)
    assert packed.scalars == 4 * D and bits(last) == bits(log[1])
    assert bits(first) == bits(log[0] if with_model else DenseCommit(1, 0, (X, -X)))


def test_fields_and_model_of_a_commit_may_be_several_byte_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WHOLE", 8)
    monkeypatch.setattr(pieces, "SLICE", 8)
    commit = DenseCommit(1, 0, (X, -X), 2 * X)
    ((_, _, fields, model),) = body = wire.pack_commits([commit], with_model=True).body
    assert [len(each) for each in (*fields, model)] == [3, 3, 3]
    assert bits(wire.unpack_commits(over_the_wire(body), 2, D)) == bits([commit])
    for wrong in (model[:2], [*model, bytes(4)], [model], [b"\0" * 20, 7], [b"\0" * 19, b"\0"]):
        with pytest.raises(BadPayload, match="a field that is not 20 bytes"):
            wire.unpack_commits([[1, 0, fields, wrong]], 2, D)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({0: 0}, "a commit of version 0"),
        ({0: 2**32}, "a commit of version 4294967296"),
        ({1: -1}, "a commit of version 1"),
        ({1: 2**32}, "a commit of version 1"),
        ({2: [bytes(4 * D)]}, "with 1 fields; there are 2"),
        ({2: [bytes(4 * D), 7]}, "a field that is not 20 bytes"),
        ({3: bytes(4)}, "a field that is not 20 bytes"),
        ({3: None}, "a field that is not 20 bytes"),
        ({3: [bytes(4)] * 5}, "a field that is not 20 bytes"),
    ],
)
def test_a_malformed_commit_is_refused(changes: dict[int, Any], complaint: str) -> None:
    (body,) = wire.pack_commits([DenseCommit(1, 0, (X, X))], with_model=True).body
    wrong = [changes.get(place, part) for place, part in enumerate(body)]
    with pytest.raises(BadPayload, match=complaint):
        wire.unpack_commits([wrong], 2, D)
    for malformed in (None, body[:3], [*body, b""], [1.0, *body[1:]], [1, 0, b"", b""]):
        with pytest.raises(BadPayload, match="a commit is not"):
            wire.unpack_commits([malformed], 2, D)
    with pytest.raises(BadPayload, match="commits are not a list"):
        wire.unpack_commits(tuple(body), 2, D)
