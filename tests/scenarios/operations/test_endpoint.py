"""Metrics over HTTP: what they say is what the run did, and nobody who connects changes or slows the run."""

from __future__ import annotations

import ast
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest
from commands import Command
from hidden_folders import free_port
from processes import kill, seedbus, wait_for
from worlds import lossy, outcome, scenario

import seedbus as package
from seedbus.agents.monitor import Reading
from seedbus.agents.refusals import Reason
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.operations.endpoint import Endpoint, served
from seedbus.scenarios.operations.exposition import REASONS, exposition, health, lags
from seedbus.scenarios.operations.http import MAX_CONNECTIONS, MAX_RATE
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump

ROOT = Path(package.__file__).resolve().parents[1]
IDLE = Reading(
    rounds=3, last_round=9, version=2, clock_s=1.5, clients=4, hosted=4, joined=3, processes=2, can_go_on=True,
    awaited=None, evaluations=0, replicas={2: 2, 0: 1}, queues={"mailbox": 0}, traffic={("plan", "down"): (5, 700)},
    refusals={"late": 2}, slowest=(3, 0.25),
)  # fmt: skip


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with closing(Endpoint("0", computes_here=True)) as served_here:
        yield served_here


def get(url: str, path: str = "/metrics") -> tuple[int, str]:
    """Return the status and the content of a page."""
    try:
        with urllib.request.urlopen(url.removesuffix("/metrics") + path) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def samples(text: str) -> dict[str, float]:
    """Return name and labels → value, of lines that have the form that Prometheus reads."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    form = re.compile(r'(seedbus_[a-z0-9_]+(?:\{(?:[a-z_]+="[^"\\\n]*",?)+\})?) (\S+)')
    return {match[1]: float(match[2]) for line in lines if (match := form.fullmatch(line)) or pytest.fail(line)}


def port(endpoint: Endpoint) -> int:
    return int(endpoint.url.rpartition(":")[2].removesuffix("/metrics"))


def test_every_metric_has_its_type_and_the_figures_of_the_reading() -> None:
    text = exposition(IDLE, 0.5, 0.1)
    found = samples(text)
    assert found["seedbus_rounds_total"] == 3 and found["seedbus_loop_lag_seconds"] == 0.5
    assert found['seedbus_bytes_total{kind="plan",direction="down"}'] == 700
    assert found['seedbus_refusals_total{reason="late"}'] == 2 and found["seedbus_slowest_client"] == 3
    names = {name.partition("{")[0] for name in found}
    typed = dict(re.findall(r"# TYPE (\S+) (\S+)", text))
    assert typed.keys() == names == set(re.findall(r"# HELP (\S+) ", text))
    assert {name for name in names if name.endswith("_total")} == {n for n in typed if typed[n] == "counter"}


def test_what_a_peer_says_never_becomes_a_label() -> None:
    reading = Reading(
        **{name: getattr(IDLE, name) for name in IDLE.__slots__} | {"refusals": {'x"} 1\n': 3, "late": 1}}
    )
    found = samples(exposition(reading, 0.0, 0.0))
    assert {name for name in found if "refusals" in name} == {
        'seedbus_refusals_total{reason="late"}', 'seedbus_refusals_total{reason="other"}'
    }  # fmt: skip
    assert found['seedbus_refusals_total{reason="other"}'] == 3


def test_each_figure_is_that_of_its_name() -> None:
    reading = Reading(
        rounds=3, last_round=9, version=5, clock_s=1.5, clients=8, hosted=7, joined=6, processes=2, can_go_on=True,
        awaited=None, evaluations=0, replicas={5: 2, 1: 1}, queues={"mailbox": 11, "in_flight": 12},
        traffic={("plan", "down"): (13, 700), ("link", "up"): (14, 90)}, refusals={"late": 15}, slowest=(4, 0.25),
    )  # fmt: skip
    found = {name.removeprefix("seedbus_"): value for name, value in samples(exposition(reading, 0.5, 0.1)).items()}
    assert {name: value for name, value in found.items() if not name.startswith("info")} == {
        "running": 1, "loop_lag_seconds": 0.5, "reading_age_seconds": 0.1, "rounds_total": 3, "rounds_limit": 9,
        "model_version": 5, "clock_seconds": 1.5, "processes": 2,
        'clients{state="all"}': 8, 'clients{state="hosted"}': 7, 'clients{state="joined"}': 6,
        'bytes_total{kind="link",direction="up"}': 90, 'bytes_total{kind="plan",direction="down"}': 700,
        'messages_total{kind="plan",direction="down"}': 13,
        'queue_length{queue="mailbox"}': 11, 'queue_length{queue="in_flight"}': 12,
        "slowest_answer_seconds": 0.25, "slowest_client": 4, 'refusals_total{reason="late"}': 15,
        'replica_lag_commits{spread="median"}': 0, 'replica_lag_commits{spread="p95"}': 4,
        'replica_lag_commits{spread="max"}': 4,
    }  # fmt: skip


@pytest.mark.slow
def test_every_reason_that_the_code_gives_has_a_label_of_its_own() -> None:
    calls = {"MalformedPacket": 0, "Declined": 0, "ReportRefused": 0, "refused": 1, "_refused": 1, "_hang_up": 1}
    found = set[str]()
    for path in [*ROOT.glob("agents/**/*.py"), *ROOT.glob("bus/**/*.py"), *ROOT.glob("scenarios/transports/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                reason = node.args[calls[name]] if name in calls and len(node.args) > calls[name] else None
                if isinstance(reason, ast.Constant) and isinstance(reason.value, str):
                    found.add(reason.value)
    assert len(found) > 40 and found - REASONS == set()
    assert set(map(str, Reason)) < REASONS


def test_the_spread_of_replicas_is_that_of_their_list() -> None:
    assert lags({9: 1, 7: 2, 0: 1}, 10) == {"median": 3, "p95": 10, "max": 10}
    assert lags({4: 95, 0: 5}, 4) == {"median": 0, "p95": 0, "max": 4} and lags({}, 4) == {}


def test_health_is_a_failure_only_when_nothing_explains_that_no_round_closes() -> None:
    def of(lag_s: float = 0.0, *, computes_here: bool = False, **changes: object) -> tuple[bool, str]:
        fields = {name: getattr(IDLE, name) for name in IDLE.__slots__} | changes
        return health(Reading(**fields), lag_s, computes_here=computes_here)

    assert health(None, 0.0, computes_here=False)[0] and of()[0] and of(awaited=3)[0]
    assert of(hosted=3, can_go_on=False) == (False, "after 3 rounds the run waits for processes of 1 of 4 clients")
    assert of(clients=1, hosted=0, can_go_on=False)[1].endswith("the run waits for processes of 1 of 1 client")
    assert of(can_go_on=False) == (False, "after 3 rounds the run waits for processes of the evaluator")
    assert not of(61.0)[0] and of(61.0, computes_here=True)[0]


@pytest.mark.slow
def test_the_last_figures_of_a_run_are_those_of_its_results(endpoint: Endpoint, tmp_path: Path) -> None:
    what = lossy(stop={"rounds": 60})
    readings: list[Reading] = []

    class Every(Endpoint):
        def detach(self) -> None:
            assert self._read is not None
            readings.append(self._read())
            super().detach()

    with closing(Every("0", computes_here=True)) as every:
        results = run(what, tmp_path / "run", monitor=every)
    (last,) = readings
    refused = {reason: sum(counts.values()) for reason, counts in results.summary["refusals"].items()}
    assert (last.rounds, last.version) == (results.summary["rounds"], results.summary["version"])
    assert last.refusals == refused and refused["late"] > 0
    by_kind = {kind: count for (kind, _), (count, _) in last.traffic.items()}
    expected = {kind: each["messages"] for kind, each in results.summary["traffic"]["by_kind"].items()}
    # the last messages are settled after the last round closed
    assert all(0 <= expected[kind] - by_kind[kind] <= 8 for kind in ("plan", "report", "commit"))
    assert last.hosted == last.clients == 8 and sum(last.replicas.values()) == last.joined


def _attack(port: int, is_over: threading.Event, counts: list[int]) -> None:
    """Connect again and again: silently, with garbage, with half a request, with too long a one, and hang up."""
    open_ones: list[socket.socket] = []
    requests = (
        b"",
        b"\0\xff" * 3000,
        b"GET /metrics HTTP/1.1\r\nX: ",
        b"GET " + b"a" * 9000,
        b"\r\n\r\n",
        b"GET /../ \r\n\r\n",
    )
    while not is_over.is_set():
        for request in requests:
            with suppress(OSError):
                other = socket.create_connection(("127.0.0.1", port), timeout=0.05)
                open_ones.append(other)
                counts[0] += 1
                other.sendall(request)
        for other in open_ones[: len(open_ones) - 200 if len(open_ones) > 200 else 0]:
            other.close()
            open_ones.remove(other)
    for other in open_ones:
        other.close()


@pytest.mark.slow
def test_strangers_who_connect_again_and_again_change_nothing(endpoint: Endpoint, tmp_path: Path) -> None:
    what = lossy(stop={"rounds": 500})
    calm = run(what, tmp_path / "calm")
    is_over, counts = threading.Event(), [0]
    attacker = threading.Thread(target=_attack, args=(port(endpoint), is_over, counts))
    attacker.start()
    wait_for(lambda: counts[0] > 100)
    attacked = run(what, tmp_path / "attacked", monitor=endpoint)
    is_over.set()
    attacker.join()
    assert outcome(attacked) == outcome(calm)
    assert endpoint.server.thread.is_alive() and len(endpoint.server.connections) <= MAX_CONNECTIONS
    wait_for(lambda: get(endpoint.url)[0] == 200)


@pytest.mark.slow
def test_idle_connections_keep_no_scraper_out(endpoint: Endpoint) -> None:
    idle = []
    for _ in range(3 * MAX_CONNECTIONS):
        idle.append(socket.create_connection(("127.0.0.1", port(endpoint))))
        time.sleep(1.2 / MAX_RATE)
    assert get(endpoint.url)[0] == 200 and len(endpoint.server.connections) <= MAX_CONNECTIONS
    for each in idle:
        each.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", 200), ("HEAD /metrics?x=1 HTTP/1.0", 200), ("GET /healthz HTTP/1.1", 200),
        ("GET / HTTP/1.1", 404), ("POST /metrics HTTP/1.1", 405), ("hello", 400), ("GET /metrics", 400),
    ],
)  # fmt: skip
def test_each_request_gets_its_answer(endpoint: Endpoint, request_line: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", port(endpoint))) as other:
        for part in (request_line.encode(), b"\r\nHost: localhost\r\n", b"\r\n"):  # a request may come in parts
            other.sendall(part)
            time.sleep(0.02)
        answer = b"".join(iter(lambda: other.recv(4096), b""))
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and bool(content) != request_line.startswith("HEAD")


def test_a_web_page_whose_name_comes_to_mean_this_machine_reads_no_metrics(endpoint: Endpoint) -> None:
    for header, status in (("Host", 421), ("Origin", 403)):
        request = urllib.request.Request(
            endpoint.url, headers={header: "http://evil.example"[7 * (header == "Host") :]}
        )
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == status and b"seedbus" not in refused.value.read()
    assert get(endpoint.url)[0] == 200


@pytest.mark.slow
def test_a_reading_that_fails_ends_no_run(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("seedbus.agents.server.instruments.Instruments.read", fail)
    monkeypatch.setattr("seedbus.scenarios.operations.http.EVERY_S", 0.01)
    results = run(scenario(stop={"rounds": 500}), tmp_path / "run", monitor=endpoint)
    assert results.summary["rounds"] == 500
    assert get(endpoint.url) == (500, "RuntimeError in a reading\n")


def test_an_address_in_use_is_one_sentence(seedbus: Command) -> None:
    with served("0", computes_here=True) as other:
        assert other is not None
        ran = seedbus("run", "small.yaml", "--metrics", port(other))
    assert ran.code == Exit.USAGE and "in use" in ran.err


@pytest.mark.slow
def test_a_server_is_unhealthy_until_its_clients_have_processes(tmp_path: Path) -> None:
    (tmp_path / "what.yaml").write_text(dump(scenario(stop={"rounds": 10**6}).resolved()))
    bind = f"tcp://127.0.0.1:{free_port()}"
    server = seedbus("server", "what.yaml", "--bind", bind, "--out", "run", "--metrics", "0", cwd=tmp_path)
    client = None
    try:
        assert server.stderr is not None
        url = re.findall(r"http://\S+", server.stderr.readline())[0]
        wait_for(lambda: get(url, "/healthz")[0] == 503)
        assert get(url, "/healthz")[1] == "after 0 rounds the run waits for processes of 8 of 8 clients\n"
        client = seedbus("client", "--connect", bind, "-q")
        wait_for(lambda: samples(get(url)[1]).get("seedbus_rounds_total", 0) > 50)
        assert get(url, "/healthz")[0] == 200 and samples(get(url)[1])["seedbus_processes"] == 2
        kill(client.pid, 9)
        wait_for(lambda: get(url, "/healthz")[0] == 503)
    finally:
        for process in filter(None, (server, client)):
            kill(process.pid, 9)
            process.communicate()
