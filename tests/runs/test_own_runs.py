"""A federation whose data never leave their owners: rehearsed here, run by processes that see one owner's data each."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hidden_folders import free_port, has_namespaces, hidden
from owners import SIZES, TASK, own_scenario, own_table, own_tables
from processes import HANGS_S, seedbus
from tcp_proxy import CountingProxy
from torch.nn.functional import cross_entropy
from worlds import outcome

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.analysis.analyse import INSTRUMENTS, analyse

WHOLE = {"name": "decomfl", "arithmetic": "integer", "precision": "int32"}
PRIVATE = {"clip": 100_000, "noise_multiplier": 1}


def rehearsed(folder: Path, owners: Path, *, transport: str = "memory", workers: int = 0, **more: Any) -> Results:
    placement = Placement(transport, workers, own=str(owners / "*" / "*.csv"))
    return run(load(own_scenario(**more)), folder, placement=placement, page=False)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def outputs_of(x: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    first, bias, head, last = torch.split(x, [4 * 3, 4, 2 * 4, 2])
    return torch.relu(inputs @ first.view(4, 3).T + bias) @ head.view(2, 4).T + last


@pytest.mark.parametrize(
    "algorithm",
    [own_scenario()["algorithm"], {"name": "fedavg", "learning_rate": 0.1, "weighting": "uniform"}],
    ids=["decomfl", "fedavg"],
)
def test_what_clients_measure_is_the_mean_over_all_rows_that_they_hold_out(
    algorithm: dict[str, Any], tmp_path: Path
) -> None:
    own_tables(tmp_path / "owners")
    results = rehearsed(tmp_path / "run", tmp_path / "owners", algorithm=algorithm)
    lines = lines_of(tmp_path / "run")
    assert [line["version"] for line in lines] == [0, 2, 4, 5]
    held = sum(round(0.2 * size) for size in SIZES)
    assert all((line["asked"], line["answered"], line["samples"]) == (3, 3, held) for line in lines)
    whole: Any = bind(with_own(load(own_scenario()), str(tmp_path / "owners/*/*.csv"), [0, 1, 2], evaluates=False))
    x = torch.from_numpy(replay(tmp_path / "run").replica.x)
    inputs, labels = whole.tensors(whole.splits["test"], np.arange(held))
    outputs = outputs_of(x, inputs)
    assert abs(lines[-1]["loss"] - float(cross_entropy(outputs.double(), labels))) < 1e-6
    assert lines[-1]["accuracy"] == float((outputs.argmax(1) == labels).double().mean())
    sent = results.summary["traffic"]["by_kind"]
    assert sent["measure"]["messages"] == sent["measured"]["messages"] == 3 * len(lines)
    assert sent["measured"]["bytes"] <= 3 * len(lines) * 32, "a count and two sums"


def test_a_run_of_owners_is_analysed_with_their_data_and_what_needs_them_says_so(tmp_path: Path) -> None:
    own_tables(tmp_path / "owners")
    hiso = {"name": "hiso", "learning_rate": 0.05, "perturbations": 4}
    folder = rehearsed(tmp_path / "run", tmp_path / "owners", algorithm=hiso).folder
    without = {each.name: each.facts for each in analyse(folder)}
    why = "the run's samples are with their owners; --own gives all of them"
    assert {name for name, facts in without.items() if facts.get("nothing") == why} == {*INSTRUMENTS} - {"break-even"}
    found = {each.name: each.facts for each in analyse(folder, own=str(tmp_path / "owners/*/*.csv"))}
    assert not any("nothing" in facts for name, facts in found.items() if name != "whitening"), found
    (model,) = found["spectrum"]["rounds"]
    whole: Any = bind(with_own(load(own_scenario()), str(tmp_path / "owners/*/*.csv"), [0, 1, 2], evaluates=False))
    inputs, labels = whole.tensors(whole.splits["train"], np.arange(whole.splits["train"].labels.size))

    def loss(x: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs_of(x, inputs.double()), labels)

    functional: Any = torch.autograd.functional
    hessian = functional.hessian(loss, torch.from_numpy(replay(folder).point).double())
    assert model["trace"]["value"] == pytest.approx(float(hessian.trace()), rel=1e-3)
    assert model["highest"] == pytest.approx(float(torch.linalg.eigvalsh(hessian)[-1]), rel=1e-3)


def test_clients_measure_without_those_that_do_not_answer(tmp_path: Path) -> None:
    own_tables(tmp_path / "owners")
    faults = [{"fault": "drop", "probability": 0.3, "kind": "measured"}]
    participation = {"clients": 3, "cohort": 3, "deadline_s": 5}
    results = rehearsed(tmp_path / "run", tmp_path / "owners", faults=faults, participation=participation)
    lines = lines_of(tmp_path / "run")
    assert min(line["answered"] for line in lines) < 3 and all(line["asked"] == 3 for line in lines)
    assert all(line["samples"] <= 14 and np.isfinite(line["loss"]) for line in lines)
    again = rehearsed(tmp_path / "again", tmp_path / "owners", faults=faults, participation=participation)
    assert outcome(again) == outcome(results)


@pytest.mark.slow
def test_workers_and_tcp_rehearse_to_the_same_bits_and_a_stopped_run_goes_on_with_them(tmp_path: Path) -> None:
    own_tables(tmp_path / "owners")
    whole = outcome(rehearsed(tmp_path / "memory", tmp_path / "owners"))
    assert outcome(rehearsed(tmp_path / "tcp", tmp_path / "owners", transport="tcp", workers=2)) == whole
    rehearsed(tmp_path / "part", tmp_path / "owners", stop={"rounds": 3})
    placement = Placement("memory", own=str(tmp_path / "owners/*/*.csv"))
    longer = run(load(own_scenario()), tmp_path / "part", resume=True, placement=placement, page=False)
    assert longer.summary["digest"] == json.loads((tmp_path / "memory/results.json").read_text())["digest"]


def test_without_its_data_nothing_is_run_here(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="partition: own: its clients bring samples of their own"):
        run(load(own_scenario()), tmp_path / "run")
    with pytest.raises(ScenarioError, match=r"evaluation\.by is server, which has none of the samples"):
        rehearsed(tmp_path / "run", tmp_path, evaluation={})


def test_only_clients_that_hold_test_samples_can_be_asked_to_measure() -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"task": {"name": "digits"}, "partition": "iid"}, "partition: iid gives clients training samples alone"),
        ({"task": TASK | {"metrics": {"own": "mine:score"}}}, "evaluation.by adds up sums over samples, and task"),
        ({"privacy": PRIVATE, "algorithm": WHOLE}, "evaluation.by measures on the clients' own samples"),
    ]
    for change, sentence in changes:
        with pytest.raises(ScenarioError) as refused:
            load(own_scenario(**change))
        assert sentence in str(refused.value), change


class Recorder:
    """Keeps all bytes that pass a proxy, and changes none."""

    def __init__(self) -> None:
        self.seen = bytearray()

    def __call__(self, data: bytes) -> bytes:
        self.seen += data
        return data


def secrets_of(table: Path) -> Iterator[bytes]:
    """Yield what nobody else may learn of a table: names, cells, and numbers as a network reads them."""
    yield from (table.stem.encode(), table.parent.name.encode())
    for line in table.read_text().splitlines()[1:]:
        name, age, *_ = line.split(",")
        yield from (name.encode(), age.encode())
        read = (float(age) - 50) / 10
        for number in (read, float(age)):
            yield from (np.float32(number).tobytes(), np.float64(number).tobytes())


def leaks(seen: bytes, tables: list[Path]) -> list[bytes]:
    return [secret for table in tables for secret in secrets_of(table) if secret in seen]


def found_when_planted(planted: bytes, seen: bytes, tables: list[Path]) -> bool:
    """Whether what an owner sends by another connection is found among what has passed a proxy."""
    recorder = Recorder()
    with socket.create_server(("127.0.0.1", 0)) as there:
        with CountingProxy(there.getsockname()[1], damage=recorder) as proxy:
            with socket.create_connection(("127.0.0.1", int(proxy.endpoint.rpartition(":")[2]))) as leak:
                accepted, _ = there.accept()
                leak.sendall(seen[:99] + planted + seen[99:199])
                with accepted:
                    accepted.recv(2**16)
    return leaks(bytes(recorder.seen), tables) == [planted]


@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="needs root and mount namespaces, to hide the owners' folders")
def test_owners_in_processes_that_see_only_their_own_folder_end_where_the_rehearsal_does(tmp_path: Path) -> None:
    tables = own_tables(tmp_path / "owners")
    (tmp_path / "own.yaml").write_text(dump(own_scenario()))
    folders, recorder, port = [table.parent for table in tables], Recorder(), free_port()
    arguments = ("own.yaml", "--bind", f"tcp://127.0.0.1:{port}", "--out", "run", "--patience", HANGS_S)
    server = seedbus("server", *arguments, cwd=tmp_path, within=hidden(*folders))
    with CountingProxy(port, damage=recorder) as proxy:
        asks = ("client", "--connect", proxy.endpoint, "--patience", HANGS_S, "--accept", tmp_path / "terms.yaml")
        shown, told = seedbus(*asks, "--show").communicate(timeout=HANGS_S)
        assert len(shown.splitlines()) == 10, told
        clients = [
            seedbus(
                *(*asks, "--clients", f"{number}-{number}", "--own", table, "--hours", "0-24"),
                *(["--out", "mine"] if number else []),
                cwd=table.parent,
                within=hidden(*(each for each in folders if each != table.parent)),
            )
            for number, table in enumerate(tables)
        ]
        ends = [process.communicate(timeout=HANGS_S) for process in (server, *clients)]
        assert [process.returncode for process in (server, *clients)] == [0, 0, 0, 0], ends
        seen = bytes(recorder.seen)
        assert len(seen) > 2_000 and b"decomfl" in seen, "the scenario passes the proxy as it is"
        assert leaks(seen, tables) == []
        assert found_when_planted(list(secrets_of(tables[1]))[5], seen, tables)
    alone = rehearsed(tmp_path / "alone", tmp_path / "owners")
    ran = json.loads((tmp_path / "run" / "results.json").read_text())
    assert ran["digest"] == alone.summary["digest"] and ran["metrics"] == alone.summary["metrics"]
    assert lines_of(tmp_path / "run") == lines_of(tmp_path / "alone")
    assert not (folders[0] / "mine").exists()
    last, own = lines_of(tmp_path / "run")[-1], [lines_of(folder / "mine")[-1] for folder in folders[1:]]
    assert [each["client"] for each in own] == [1, 2] and {each["version"] for each in own} == {last["version"]}
    assert {last["loss.p50"], last["loss.p90"]} & {each["loss"] for each in own}, "of three clients, two are here"
    assert all(each["samples"] == round(0.2 * size) for each, size in zip(own, SIZES[1:], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "sentence", "secret"),
    [
        (
            ("sick\n", "sick\nsomebody,51,male,perhaps\n"),
            "line 2, column sick: found 'perhaps'; expected one",
            "perhaps",
        ),
        (
            ("sick\n", "viral_load\n"),
            "no column sick for task.columns; expected one of name, age, sex, viral_load",
            "viral",
        ),
    ],
    ids=["cell", "column"],
)
def test_an_owner_whose_table_does_not_fit_is_told_where_and_the_server_gets_a_word(
    tmp_path: Path, change: tuple[str, str], sentence: str, secret: str
) -> None:
    wrong, recorder, port = own_table(tmp_path / "wrong.csv", 4, 9), Recorder(), free_port()
    wrong.write_text(wrong.read_text().replace(*change))
    (tmp_path / "own.yaml").write_text(dump(own_scenario()))
    server = seedbus("server", "own.yaml", "--bind", f"tcp://127.0.0.1:{port}", "--out", "run", cwd=tmp_path)
    with CountingProxy(port, damage=recorder) as proxy:
        client = seedbus(
            *("client", "--connect", proxy.endpoint, "--clients", "1-1", "--own", wrong, "--patience", HANGS_S)
        )
        _, said = client.communicate(timeout=HANGS_S)
    server.send_signal(signal.SIGINT)
    _, told = server.communicate(timeout=HANGS_S)
    assert client.returncode == 3 and sentence in said
    assert b"decomfl" in recorder.seen and leaks(bytes(recorder.seen), [wrong]) == []
    assert secret.encode() not in recorder.seen
    assert "it gave up: data" in told and secret not in told and "wrong" not in told
