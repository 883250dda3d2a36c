"""What a server that the client's user does not control can ask for, and what it learns: a reason of one word."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from commands import Command, CommandResult
from fake_server import HOST, OFFERED, SESSION, Answer, FakeServer, declining, offering
from hostile_packets import column
from hostile_peers import MORE, frame, greeting, ready
from small_language import write

from seedbus.agents import messages
from seedbus.bus import encode
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Packet, Type

SECRET = "api-key=6f1d"
ESCAPES = "\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07 come\r\n again \u202e"
DECOMFL = OFFERED["algorithm"]
EVERYTHING = json.dumps(OFFERED).encode()


@pytest.fixture(autouse=True)
def _roots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client's own directory, and a private file beside it."""
    write(tmp_path / "roots" / "mine" / "dev.tsv", "sentence\tlabel\na film\tbad\n")
    for folder in ("private", "roots/sound"):
        write(tmp_path / folder / "dev.tsv", f"sentence\tlabel\na film\t{SECRET}\n")
        write(tmp_path / folder / "train.tsv", "sentence\tlabel\na film\t0\n" * 9)
        write(tmp_path / folder / "config.json", json.dumps({SECRET: SECRET}))
    (tmp_path / "roots" / "way-out").symlink_to(tmp_path / "private")
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "roots"))


def joins(seedbus: Command, answer: Answer, *arguments: object) -> tuple[CommandResult, FakeServer]:
    """Run a client against a fake server; return what the command printed, and the server."""
    with FakeServer(answer) as server:
        said = seedbus("client", "--connect", server.endpoint, "--patience", 5, *arguments)
    assert "Traceback" not in said.err
    return said, server


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("asked", "offered", "sentence"),
    [
        (("--clients", "3-5"), {"spans": column(3, 6)}, "it offers 4 clients; accepted are exactly the 3 asked for"),
        (("--clients", "3-5"), {"spans": column(0, 2)}, "it offers 3 clients; accepted are exactly the 3 asked for"),
        (
            ("--clients", "3-5", "--evaluator"),
            {"spans": b"", "evaluates": 1},
            "it offers 0 clients; accepted are exactly the 3",
        ),
        (("--clients", 1), {"spans": column(0, 2**24 - 1)}, "it offers 16,777,216 clients; accepted are at most 1"),
        ((), {"spans": column(0, 2**24 - 1)}, "it offers 16,777,216 clients; accepted are at most 1,000,000"),
        (("--max-clients", 2), {"spans": column(0, 2)}, "it offers 3 clients; accepted are at most 2"),
        ((), {"evaluates": 1}, "it offers the evaluator, which nobody asked for"),
        ((), {"spans": column(0, 8)}, "it offers client 8; its scenario has the clients 0 to 7"),
        ((), {"heartbeat": 0}, "a heartbeat of 0 ms; 10 to 60,000 ms are accepted"),
        ((), {"heartbeat": 9}, "a heartbeat of 9 ms; 10 to 60,000 ms are accepted"),
        ((), {"heartbeat": 2**60}, "a heartbeat of 1,152,921,504,606,846,976 ms; 10 to 60,000 ms are accepted"),
        ((), {"run": b"r" * 2000}, "its host, its run or its evaluator is out of range"),
        ((), {"spans": column(5, 2)}, "ends before it begins"),
    ],
)
def test_an_offer_that_does_not_fit_ends_the_client_in_a_sentence(
    seedbus: Command, asked: tuple[object, ...], offered: dict[str, Any], sentence: str
) -> None:
    began = time.process_time()
    said, server = joins(seedbus, offering(EVERYTHING, **offered), *asked)
    assert said.code == 7 and sentence in said.err, said.err
    assert said.err.count("\n") == 1
    assert server.farewells == [b"server"]
    assert time.process_time() - began < 2, "millions of clients were not spelt out"


BAD_JSON: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"name: asked",
    "a list": b"[]",
    "null": b"null",
    "UTF-16": json.dumps(OFFERED).encode("utf-16"),
    "half a character": b'{"name": "\xed\xa0\x80"}',
    "an escaped half": json.dumps(OFFERED | {"name": "\ud800"}).encode(),
    "nested deeply": b'{"task": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested": json.dumps(OFFERED | {"task": json.loads("[" * 150 + "]" * 150)}).encode(),
    "a number of 5,000 digits": EVERYTHING[:-1] + b', "seed": ' + b"9" * 5000 + b"}",
    "a number of 4,000 digits": EVERYTHING[:-1] + b', "seed": ' + b"9" * 4000 + b"}",
    "a float beyond all": EVERYTHING[:-1] + b', "verify_every": 1e999}',
    "NaN": EVERYTHING[:-1] + b', "seed": NaN}',
    "Infinity": EVERYTHING[:-1] + b', "seed": -Infinity}',
    "a key twice": b'{"name": "a", ' + EVERYTHING[1:],
    "256 kB of mistakes": EVERYTHING[:-1] + b', "faults": [' + b"1," * (2**17 - 199) + b"1]}",
    "names of Python's": json.dumps(OFFERED | {"__class__": "os", "__init__": {"__globals__": 1}}).encode(),
    "a task of another kind": json.dumps(OFFERED | {"task": {"name": {"a": 1}}}).encode(),
    "a task that is a list": json.dumps(OFFERED | {"task": [1]}).encode(),
    "text where numbers belong": json.dumps(OFFERED | {"participation": {"clients": ESCAPES}}).encode(),
    "a learning rate of text": json.dumps(
        OFFERED | {"algorithm": {"name": "decomfl", "learning_rate": "nan"}}
    ).encode(),
    "10⁹ evaluations": json.dumps(
        OFFERED | {"algorithm": DECOMFL | {"perturbations": 60_000, "local_steps": 20_000}}
    ).encode(),
    "10⁴⁰ coordinates": json.dumps(OFFERED | {"task": {"name": "quadratic", "dimension": 10**40}}).encode(),
}


@pytest.mark.few(8)
@pytest.mark.parametrize("name", BAD_JSON)
def test_a_scenario_that_is_none_ends_the_client_in_a_sentence(seedbus: Command, name: str) -> None:
    began = time.process_time()
    said, server = joins(seedbus, offering(BAD_JSON[name]))
    assert said.code == 2, said.err
    assert said.err.startswith("seedbus: the scenario of tcp://") and len(said.err) < 5000
    assert said.err.replace("\n", "").isprintable()
    assert server.farewells == [b"scenario"]
    assert time.process_time() - began < 5


@pytest.mark.few(8)
@pytest.mark.parametrize("field", ["data", "model"])
@pytest.mark.parametrize(
    "place",
    ["{}/private", "../private", "way-out", "mine/../../private", "~", "~root", "{}/nowhere", "/", "\0", "a" * 9000],
)
def test_a_scenario_cannot_name_a_folder_outside_of_the_clients_own(
    seedbus: Command, tmp_path: Path, field: str, place: str
) -> None:
    task = {"name": "sentence-encoder", field: place.format(tmp_path)}
    said, server = joins(seedbus, offering({"task": task}))
    if len(place) < 9000:  # the long one lies inside the client's folder and does not exist
        assert (said.code, server.farewells) == (9, [b"limits"]), said.err
        assert str(tmp_path / "roots") in said.err
    assert SECRET not in said.err
    assert not server.has_received(SECRET)


@pytest.mark.parametrize(
    ("place", "code", "reason"),
    [("{}/private/train.tsv", 9, b"limits"), ("../private/train.tsv", 9, b"limits"), ("sound/train.tsv", 3, b"data")],
)
def test_a_partitions_table_is_read_inside_the_clients_own_folders_only_and_never_told(
    seedbus: Command, tmp_path: Path, place: str, code: int, reason: bytes
) -> None:
    wanted = {"task": {"name": "digits"}, "partition": {"kind": "file", "file": place.format(tmp_path)}}
    said, server = joins(seedbus, offering(wanted))
    assert (said.code, server.farewells) == (code, [reason]), said.err
    assert not server.has_received("film") and ("expected the columns client,row" in said.err) == (code == 3)


def test_a_client_does_not_even_look_at_a_path_outside_of_its_own_folders(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at a path may mount what it names, wait for another machine, and take longer if it is there."""
    looked_at: list[str] = []
    for name in ("lstat", "stat"):
        look = getattr(os, name)

        def noted(path: Any, *rest: Any, look: Any = look, **more: Any) -> Any:
            looked_at.append(os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else "")
            return look(path, *rest, **more)

        monkeypatch.setattr(os, name, noted)
    outside = str(tmp_path / "private")
    for place in (outside, "../private", "mine/../../private", "way-out/../private"):
        for named in (
            {"task": {"name": "sentence-encoder", "data": place}},
            {"task": {"name": "digits"}, "partition": {"kind": "file", "file": f"{place}/train.tsv"}},
        ):
            said, _ = joins(seedbus, offering(named))
            assert said.code == 9 or place.startswith("way-out"), said.err
    assert looked_at and not [path for path in looked_at if path.startswith(outside)]


def test_a_folder_of_a_data_set_is_no_way_out_of_the_clients_own(seedbus: Command, tmp_path: Path) -> None:
    (tmp_path / "roots" / "mine" / "out").symlink_to(tmp_path / "private")
    task = {"name": "hugging-face", "model": "mine", "head": "sequence-classification", "dataset": "mine"}
    columns = {"text": "sentence", "label": "label"}
    said, server = joins(seedbus, offering({"task": task | {"configuration": "out", "columns": columns}}))
    assert (said.code, server.farewells) == (9, [b"limits"]), said.err
    assert SECRET not in said.err


def test_a_folder_in_the_directory_where_the_client_runs_is_no_name_of_a_model(
    seedbus: Command, tmp_path: Path
) -> None:
    assert Path.cwd() == tmp_path
    said, server = joins(seedbus, offering({"task": {"name": "language-model", "model": "private"}}))
    assert (said.code, server.farewells) == (9, [b"limits"]), said.err


@pytest.mark.parametrize("place", ["sound", "{}/roots/sound", "mine/../sound"])
def test_what_went_wrong_in_a_file_stays_with_the_client(seedbus: Command, tmp_path: Path, place: str) -> None:
    pytest.importorskip("transformers", reason="language models need transformers")
    task = {"name": "sentence-encoder", "data": place.format(tmp_path), "train": {"kind": "head"}}
    said, server = joins(seedbus, offering({"task": task}))
    assert said.code == 3 and f"label '{SECRET}'" in said.err, "its own user is told"
    assert server.farewells == [b"data"]
    assert not server.has_received(SECRET)


def test_a_root_of_the_command_line_is_one_of_the_clients_own(seedbus: Command, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="language models need transformers")
    answer = offering({"task": {"name": "sentence-encoder", "data": "private", "train": {"kind": "head"}}})
    said, server = joins(seedbus, answer, "--data", tmp_path, "--data", tmp_path / "roots")
    assert said.code == 3 and server.farewells == [b"data"], said.err
    said, _ = joins(seedbus, answer, "--data", tmp_path / "nowhere")
    assert said.code == 2 and said.err.endswith(f"--data {tmp_path}/nowhere: it does not exist; expected a directory\n")


@pytest.mark.parametrize(
    ("limits", "scenario", "sentence"),
    [
        (("--tasks", "digits,mnist"), {}, "the task quadratic; allowed: digits, mnist (--tasks)"),
        (("--max-dimension", 19), {}, "a dimension of 20; allowed: at most 19 (--max-dimension)"),
        (
            ("--max-memory", "1.5GiB"),
            {"task": {"name": "quadratic", "dimension": 2**30}},
            "memory of at least 4,294,968,448 bytes; allowed: at most 1,610,612,736 bytes (--max-memory)",
        ),
        ((), {"task": {"name": "quadratic", "dimension": 2**40}}, "allowed: at most "),
        ((), {"task": {"name": "null", "dimension": 2**36}, "verify": True}, "memory of at least "),
        (("--max-memory", "1GiB"), {"participation": {"clients": 2**24 - 1}}, "memory of at least 2,147,48"),
        ((), {"description": "a" * 2**18}, "a scenario of 262,"),
    ],
)
def test_more_than_the_user_allows_is_refused_before_anything_is_loaded(
    seedbus: Command,
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[object, ...],
    scenario: dict[str, Any],
    sentence: str,
) -> None:
    monkeypatch.setattr("seedbus.scenarios.running.worker.bind_for_clients", None)
    said, server = joins(seedbus, offering(scenario), *limits)
    assert said.code == 9, said.err
    assert said.err.startswith("seedbus: the server asks for more than this process allows: ")
    assert sentence in said.err and said.err.count("\n") == 1
    assert server.farewells == [b"limits"]


@pytest.mark.parametrize("option", [("--max-memory", "4 elephants"), ("--max-memory", "1MB"), ("--tasks", "digit")])
def test_a_limit_that_is_none_is_a_mistake_of_the_user(seedbus: Command, option: tuple[str, str]) -> None:
    said = seedbus("client", "--connect", "tcp://127.0.0.1:9", *option)
    assert said.code == 2 and said.err.startswith(f"seedbus: {' '.join(option)}: "), said.err


def test_what_a_server_says_as_it_sends_a_client_away_moves_no_cursor(seedbus: Command) -> None:
    said, _ = joins(seedbus, declining(ESCAPES, ESCAPES * 20))
    assert said.code == 7 and "come" in said.err
    assert said.err.rstrip("\n").isprintable() and said.err.count("\n") == 1


def test_what_a_server_says_as_it_refuses_a_join_moves_no_cursor(seedbus: Command) -> None:
    refusal = encode(messages.refuse(HOST, ESCAPES, ESCAPES))[0]
    noise = [packet.packet(Type.DELIVER, SESSION, packet.number(0), packet.entry(b"\x1b]0;x\x07"))]

    def answer(incoming: Packet) -> Iterable[bytes]:
        if incoming.type is Type.POST:
            return [*noise, packet.packet(Type.POST, SESSION, packet.entry(refusal))]
        return offering(EVERYTHING)(incoming)

    said, _ = joins(seedbus, answer)
    assert said.code == 7 and "the server refused to let this process join" in said.err, said.err
    assert said.err.replace("\n", "").isprintable()


def test_notes_that_a_server_causes_come_to_an_end(seedbus: Command) -> None:
    nonsense = packet.packet(Type.DELIVER, SESSION, packet.number(0), *[packet.entry(b"\x1bno")] * 5000)
    bye = packet.packet(Type.POST, SESSION, packet.entry(encode(messages.bye(HOST))[0]))
    answers = {Type.POST: [nonsense], Type.ANSWER: [bye]}
    offer = offering(EVERYTHING)
    said, _ = joins(seedbus, lambda incoming: answers.get(incoming.type, []) or offer(incoming))
    assert said.code == 0 and 100 <= said.err.count("malformed:") < 120, said.err[-300:]  # beyond 100, one a second


def test_a_server_chooses_no_file_as_the_clients_secret_and_cannot_have_reports_without_one(
    seedbus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had named any file of a client, a pipe that hangs too, and tried contents by what a report said."""
    monkeypatch.setenv("SEEDBUS_SEED_SECRET", "")
    os.mkfifo(tmp_path / "trap")
    pin = tmp_path / "pin"
    pin.write_text("4821")
    for named in (tmp_path / "trap", pin, "secret.key"):
        said, server = joins(seedbus, offering({"seed_shift": str(named)}))
        assert (said.code, server.farewells) == (2, [b"scenario"])
        assert "a scenario names no file of a client" in said.err and said.err.count("\n") == 1
    bad_data = {"task": {"name": "digits"}, "partition": {"kind": "file", "file": "sound/train.tsv"}}
    for more in ({}, bad_data):  # a secret that is missing is told before data is read
        said, server = joins(seedbus, offering({"seed_shift": True} | more))
        assert (said.code, server.farewells) == (2, [b"scenario"]) and "this process has no secret" in said.err
    secret = tmp_path / "secret.key"
    secret.touch(mode=0o600)
    secret.write_bytes(b"sixteen or more bytes")
    said, server = joins(seedbus, offering({}), "--seed-secret", secret)
    assert (said.code, server.farewells) == (9, [b"limits"]) and "allowed: seed_shift: true" in said.err
    said, server = joins(seedbus, offering({"seed_shift": True}), "--seed-secret", tmp_path / "trap")
    assert said.code == 2 and not server.received and "trap is a pipe" in said.err, "its user's mistake"
    bye = packet.packet(Type.POST, SESSION, packet.entry(encode(messages.bye(HOST))[0]))
    offer = offering({"seed_shift": True})
    said, _ = joins(
        seedbus, lambda incoming: [bye] if incoming.type is Type.POST else offer(incoming), "--seed-secret", secret
    )
    assert said.code == 0 and "the run is over" in said.err


def test_a_client_opens_no_file_of_a_fault(seedbus: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trap")  # opening it blocks for ever
    bye = packet.packet(Type.POST, SESSION, packet.entry(encode(messages.bye(HOST))[0]))
    kinds = ("trace", "link-trace", "device-speeds")
    offer = offering({"faults": [{"fault": kind, "file": str(tmp_path / "trap")} for kind in kinds]})
    said, _ = joins(seedbus, lambda incoming: [bye] if incoming.type is Type.POST else offer(incoming))
    assert said.code == 0 and "the run is over" in said.err


def test_a_worker_of_the_servers_own_process_trusts_it(tmp_path: Path) -> None:
    from seedbus.bus import Offer
    from seedbus.models.errors import NotAllowed
    from seedbus.scenarios.running.limits import Limits, read_scenario

    asked = OFFERED | {"task": {"name": "sentence-encoder", "data": str(tmp_path / "private")}}
    offer = Offer(HOST, ((0, 0),), False, json.dumps(asked).encode())
    assert read_scenario(offer, "tcp://a:1", None).task.data == str(tmp_path / "private")  # type: ignore[attr-defined]
    with pytest.raises(NotAllowed):
        read_scenario(offer, "tcp://a:1", Limits())
    assert os.environ["SEEDBUS_DATA"] not in str(tmp_path / "private")


@pytest.mark.slow
def test_a_message_that_never_ends_ends_the_client_in_a_sentence(seedbus: Command) -> None:
    """ZeroMQ delivers whole messages only, and an empty frame takes thirty times its bytes in memory."""
    frames = frame(b"", MORE) * 2**15

    def pour(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:  # on a busy machine a client may reconnect before the message is too long
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.sendall(greeting() + ready(b"ROUTER"))
                    heard = b""
                    while b"READY" not in heard and (
                        more := connection.recv(4096)
                    ):  # libzmq closes a connection on frames before its READY
                        heard += more
                    for _ in range(2000):
                        connection.sendall(frames)

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=pour, args=(listener,), daemon=True).start()
    said = seedbus("client", "--connect", f"tcp://127.0.0.1:{listener.getsockname()[1]}", "--patience", 60)
    listener.close()
    assert said.code == 7 and "bytes of a message that does not end" in said.err, said.err
