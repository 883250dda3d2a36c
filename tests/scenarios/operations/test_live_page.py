"""The live page: what it shows is what the run did, other web pages cannot read it, and nobody slows the run."""

from __future__ import annotations

import math
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from pages import allowed, own, plots
from processes import seedbus, wait_for
from worlds import lossy, outcome, scenario

from seedbus.agents.round_record import ClosedRound, RoundRecord
from seedbus.bus.errors import BadEndpoint
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.operations import http
from seedbus.scenarios.operations.live_page import LivePage, LiveRun
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.yaml_text import dump

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Big:
    """A subject whose content is as large as asked for."""

    title = "big <b>"

    def __init__(self, size: int = 10) -> None:
        self.changes, self.size = 0, size

    def drawn(self) -> str:
        return f"<p>{self.changes}</p>" + "x" * self.size


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVERY_S", 0.02)
    monkeypatch.setattr(http, "MAX_RATE", 1000.0)


def ask(page: LivePage, path: str = "/", headers: Mapping[str, str] | None = None) -> socket.socket:
    """Send a request, and return the connection."""
    port = int(page.url.split(":")[2].strip("/"))
    other = socket.create_connection(("127.0.0.1", port))
    all_headers = {"Host": f"127.0.0.1:{port}"} | dict(headers or {})
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in all_headers.items()), "", ""]
    try:
        other.sendall("\r\n".join(lines).encode())
    except OSError:
        other.close()
        raise
    return other


def get(page: LivePage, path: str = "/", headers: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Return the status, the head and the content of an answer."""
    with ask(page, path, headers) as other:
        head, _, content = b"".join(iter(lambda: other.recv(65536), b"")).decode().partition("\r\n\r\n")
    return int(head.split()[1]), head, content


def events(other: socket.socket) -> Iterator[str]:
    """Yield the events of a stream until it ends."""
    rest = b""
    while received := other.recv(65536):
        *whole, rest = (rest + received).split(b"\n\n")
        for each in whole:
            yield "\n".join(line[6:] for line in each.decode().splitlines() if line.startswith("data: "))


def test_the_page_needs_nothing_from_elsewhere_and_fits_a_phone(tmp_path: Path) -> None:
    with closing(LivePage(Big(), "0")) as page:
        status, head, shell = get(page)
    assert status == 200 and "<title>big &lt;b&gt;</title>" in shell
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in shell
    assert not re.search(r"https?://|src=|href=|@import|url\(", own(shell))
    (policy,) = re.findall("Content-Security-Policy: (.*)\r\n", head)
    assert policy.startswith("default-src 'none'; ") and allowed(shell) in policy and "connect-src 'self'" in policy
    assert policy.count("unsafe") == 1 and "style-src 'unsafe-inline'" in policy


@pytest.mark.parametrize("path", ["/", "/events"])
def test_another_web_page_can_neither_read_it_nor_bring_its_own_name(path: str) -> None:
    with closing(LivePage(Big(), "0")) as page:
        port = page.url.split(":")[2].strip("/")
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": f"evil.example:{port}"}, 421),
            ({"Host": f"127.0.0.1.evil.example:{port}"}, 421),
            ({"Host": f"localhost.:{port}"}, 421),
            ({"host": "evil.example"}, 421),  # two hosts
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"https://127.0.0.1:{port}"}, 403),
            ({"Origin": "http://127.0.0.1:1"}, 403),  # another server of this machine
        ):
            answer = get(page, path, headers)
            assert (answer[0], "Access-Control" in answer[1], "<p>" in answer[2]) == (status, False, False), headers
        for host in (f"localhost:{port}", "localhost:9000", f"[::1]:{port}"):  # by way of ssh -L, for example
            with ask(page, path, {"Host": host, "Origin": f"http://{host}"}) as own:
                assert own.recv(12) == b"HTTP/1.1 200", host


def test_a_request_that_comes_byte_by_byte_wakes_the_thread_a_few_times(fast: None) -> None:
    with closing(LivePage(Big(), "0")) as page, ask(page, "/events") as stream:
        assert stream.recv(12) == b"HTTP/1.1 200"
        server = page._server
        assert server is not None

        def parts() -> int | None:
            """How many parts of the slow request have been read; None once it was hung up on."""
            return next((each.parts for each in list(server.connections.values()) if not each.is_stream), None)

        with socket.create_connection(stream.getpeername()) as slow:
            wait_for(lambda: parts() == 0)
            sent = 0
            while parts() is not None:
                slow.sendall(b"a")
                sent += 1
                while parts() == sent - 1:
                    time.sleep(0.001)
        assert sent == http.MAX_PARTS + 1
        assert get(page)[0] == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [("/../../etc/passwd", 404), ("/%2e%2e/scenario.yaml", 404), ("//events", 404), ("/" + "a" * 20_000, 400)],
)
def test_there_are_no_files_behind_it(path: str, status: int) -> None:
    with closing(LivePage(Big(), "0")) as page, ask(page, path) as other, suppress(ConnectionResetError):
        assert other.recv(12) == b"HTTP/1.1 %d" % status


def test_a_page_shows_a_loss_that_is_not_finite() -> None:
    watcher = LiveRun(scenario())
    watcher.measured({"round": 3, "version": 4, "time_s": 1.0, "loss": math.nan, "bytes_up": 8, "bytes_down": 9})
    assert "<td>newest evaluation</td><td>loss nan</td>" in watcher.drawn()


def test_the_rounds_of_a_run_that_was_resumed_are_drawn_at_their_numbers() -> None:
    watcher = LiveRun(scenario(stop={"rounds": 300, "simulated_s": 3}))
    for round in range(7, 10):
        watcher.round_closed(ClosedRound(round, round, (1,), (1,), None, RoundRecord(0, 10**9)), 10**9, 8)
    (drawn,) = plots(watcher.drawn())["How long rounds took"]["data"]
    assert (drawn["x"], drawn["y"]) == ([7, 8, 9], [1, 1, 1])
    assert "<td>rounds</td><td>10 of 30, version 9" in watcher.drawn()  # as the run's clock goes, at 10 rounds a second


@pytest.mark.slow
def test_a_stream_shows_the_run_as_it_goes_on_and_at_last_its_report(tmp_path: Path, fast: None) -> None:
    class Shown(LiveRun):
        """Waits now and then until the page has shown the run as it is."""

        def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
            super().round_closed(closed, now_ns, bytes_so_far)
            if closed.round % 50 == 49:
                wait_for(lambda: f"<td>rounds</td><td>{closed.round + 1} of 300, " in shown[-1])

    what, shown = lossy(stop={"rounds": 300}), list[str]()
    watcher = Shown(what)
    page = LivePage(watcher, "0")
    with closing(page), ask(page, "/events") as stream:
        reader = threading.Thread(target=lambda: shown.extend(events(stream)))
        reader.start()
        results = run(what, tmp_path / "live", observer=watcher)
        page.last = lambda: watcher.ended(results)
        page.close()
        reader.join()
    during, last = shown[1:-1], shown[-1]
    rounds = [int(found[1]) for each in during if (found := re.search(r"<td>rounds</td><td>(\d+) of 300, ", each))]
    assert rounds == sorted(rounds) and len(set(rounds)) > 3 and "<td>newest evaluation</td>" in during[-1]
    assert last.strip() in (results.folder / "report.html").read_text()
    assert outcome(results) == outcome(run(what, tmp_path / "calm"))


@pytest.mark.slow
def test_a_reader_that_reads_nothing_is_hung_up_on_and_delays_no_other(
    fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_SECONDS", 1.0)
    subject = Big(size=8_000_000)  # more than the system keeps for a connection
    with closing(LivePage(subject, "0")) as page, ask(page, "/events"), ask(page, "/events") as reader:
        server = page._server
        assert server is not None
        wait_for(lambda: len(server.connections) == 2)
        subject.changes += 1
        stream = events(reader)
        assert "nothing has been measured yet" in next(stream) and next(stream).startswith("<p>1</p>")
        wait_for(lambda: len(server.connections) == 1)
        subject.changes += 1
        assert next(stream).startswith("<p>2</p>")
        more = [ask(page, "/events") for _ in range(http.MAX_STREAMS)]
        wait_for(lambda: len(server._streams) == http.MAX_STREAMS)
        assert more[-1].recv(12) == b"HTTP/1.1 503"
        for each in more:
            each.close()


def test_a_slow_reader_has_all_the_time_while_it_takes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over a line on which the page takes longer than a reader may take nothing."""
    now_s = [1000.0]
    monkeypatch.setattr(http, "wall_seconds", lambda: now_s[0])
    with closing(LivePage(Big(), "0")) as page:
        page._shell, server = "x" * 16_000_000, page._server
        assert server is not None
        with ask(page) as reader:
            taken = bytearray(reader.recv(12))
            (connection,) = server.connections.values()
            while part := reader.recv(2**20):
                taken += part
                time.sleep(0.005)  # the server's thread gets its turn
                if connection.until_s > now_s[0] + 0.9 * http.MAX_SECONDS:  # it has noticed that some was taken
                    now_s[0] += 0.9 * http.MAX_SECONDS
    assert taken.endswith(b"x" * 16_000_000) and now_s[0] > 1000.0 + 2 * http.MAX_SECONDS


def test_a_subject_that_cannot_be_drawn_ends_nothing(fast: None) -> None:
    class Broken(Big):
        def drawn(self) -> str:
            raise RuntimeError("a bug")

    with closing(LivePage(Broken(), "0")) as page, ask(page, "/events") as stream:
        shown = events(stream)
        assert "nothing has been measured yet" in next(shown)
        assert next(shown) == "<p>the page cannot be drawn: RuntimeError</p>"


@pytest.mark.parametrize("port", ["x", "70000", "0.0.0.0:0", "-1"])
def test_a_port_that_cannot_be_used_is_one_sentence_and_no_run(seedbus: Command, port: str) -> None:
    ran = seedbus("run", "small.yaml", "--out", "run", "--live", port)
    assert ran.code == Exit.USAGE and ran.err.count("\n") == 1 and not Path("run").exists()
    assert f"--live {port}" in ran.err and "expected a port of this machine" in ran.err


def test_a_port_of_more_digits_than_python_reads_is_no_port() -> None:
    with pytest.raises(BadEndpoint, match="is no port"):
        LivePage(Big(), "9" * 5000)


def _hold(page: LivePage, is_over: threading.Event) -> None:
    """Open streams that are never read, and send requests without an end."""
    held: list[Any] = []
    while not is_over.is_set():
        with suppress(OSError):
            held.append(ask(page, "/events"))
            held.append(ask(page, "/" + "a" * 9000))
            held.append(socket.create_connection(held[-1].getpeername(), timeout=1))
            held[-1].sendall(b"GET / HTTP/1.1\r\nX: ")
        for other in held[:-100]:
            other.close()
        del held[:-100]
    for other in held:
        other.close()


@pytest.mark.slow
def test_hostile_readers_change_nothing_and_little_is_kept_for_them(tmp_path: Path) -> None:
    what = lossy(stop={"rounds": 300})
    calm = run(what, tmp_path / "calm")
    watcher, is_over = LiveRun(what), threading.Event()
    with closing(LivePage(watcher, "0")) as page:
        attacker = threading.Thread(target=_hold, args=(page, is_over))
        attacker.start()
        attacked = run(what, tmp_path / "attacked", observer=watcher)
        server = page._server
        assert server is not None and server.thread.is_alive()
        assert len(server.connections) <= http.MAX_CONNECTIONS and len(server._streams) <= http.MAX_STREAMS
        is_over.set()
        attacker.join()
        wait_for(lambda: get(page)[0] == 200)
    assert outcome(attacked) == outcome(calm)


HELD = """
import time
from pathlib import Path
from typing import Literal

from seedbus.plugin import PASS, MessageSelector, Passage, Verdict


class Hold(MessageSelector):
    \"\"\"Holds up round 200 of a run, and of no trial, until there is a file named seen.\"\"\"

    fault: Literal["hold"] = "hold"

    def judge(self, passage: Passage) -> Verdict:
        if passage.round == 200 and any(Path("studies").rglob("journal.sqlite")):
            while not Path("seen").exists():
                time.sleep(0.05)
        return PASS
"""


@pytest.mark.slow
def test_a_study_has_a_live_page_with_its_report_so_far(tmp_path: Path) -> None:
    (tmp_path / "hold.py").write_text(HELD)
    document = scenario(stop={"rounds": 300}).resolved() | {"faults": [{"fault": "hold"}]}
    (tmp_path / "small.yaml").write_text(dump(document))
    (tmp_path / "study.yaml").write_text("name: pair\nbase: small.yaml\nseeds: [1, 2]\n")
    process = seedbus("study", "study.yaml", "--live", "0", "--plugin", "hold.py", cwd=tmp_path)
    try:
        assert process.stderr is not None
        url = next(found[0] for line in process.stderr if (found := re.findall(r"live page is at (\S+)", line)))
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].strip("/")))) as other:
            other.sendall(f"GET /events HTTP/1.1\r\nHost: {url[7:-1]}\r\n\r\n".encode())
            coming = events(other)
            assert any("rounds</td></tr>" in each for each in coming), "of a run that goes on"
            (tmp_path / "seen").touch()
            shown = list(coming)
    finally:
        (tmp_path / "seen").touch()
        process.communicate()
    assert "<td>2 of 2 are finished</td>" in shown[-1] and "<figcaption>Loss over rounds</figcaption>" in shown[-1]
