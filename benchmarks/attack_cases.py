"""The attacks on a run. Each returns what it sent, affects nothing but that run, and ends by itself."""

from __future__ import annotations

import selectors
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from attack_arena import CLIENTS, LONG_RUN, SHORT_RUN, START_S, Arena
from attack_proxy import Hook, Proxy, lying, silent
from attack_wire import (
    ANSWER,
    COMMIT,
    DECLINE,
    DELIVER,
    EVALUATION,
    EVALUATOR,
    FAREWELL,
    HELLO,
    MORE,
    MOST,
    NO_CLIENTS,
    PING,
    POST,
    Peer,
    Refused,
    Stay,
    deliveries,
    entries,
    envelope,
    frame,
    hello,
    opened,
    pack_answers,
    tag_of,
    type_of,
)

MOST_GROWTH_MB = 4000.0  # growth of the server's memory at which a flood stops
QUIET_BYTES = 260_000  # bytes of an unfinished message
STALL_S = 25.0
HALF = CLIENTS // 2
SPANS = [(4 * number, 4 * number + 1) for number in range(16_000)]


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: its name.
        finding: a number to refer to it by.
        rounds: length of the run.
        play: carries out the attack and returns what was sent.
        options: options of its arena.
    """

    name: str
    finding: str
    rounds: int
    play: Callable[[Arena], str]
    options: dict[str, Any] = field(default_factory=dict)


def cases() -> list[Attack]:
    half, high = struct.pack("<d", 0.5), struct.pack("<d", 0.9999)
    metrics = {"event": "event", "self": "self", "method": "method_name", "markup": "[/nope]"}
    liars: dict[str, tuple[str, str, Hook]] = {
        f"metric-{word}": ("1", f"a metric {name!r}", lying(partial(_with, half, name)))
        for word, name in metrics.items()
    }
    liars["accuracy"] = "2", "accuracy 0.9999", lying(partial(_with, high, "accuracy"))
    liars["digests"] = "2", "false digests", lying(digest=_flipped)
    return [
        Attack("worker-killed", "control", LONG_RUN, _worker_killed, {"patience_s": 12.0, "files": 1024}),
        *(
            Attack(f"evaluator-{word}", finding, SHORT_RUN, partial(_liar, what=what, hook=hook))
            for word, (finding, what, hook) in liars.items()
        ),
        Attack("evaluator-of-run", "2", SHORT_RUN, _evaluator_of_run, {"workers": 2}),
        Attack("first-join", "3", SHORT_RUN, _first_join, {"limit_s": 30.0}),
        Attack("first-join-of-run", "3", SHORT_RUN, _first_join_of_run, {"workers": 2}),
        Attack("more-frames", "4", LONG_RUN, partial(_unfinished, content=b"", most=1000)),
        Attack("small-frames", "4", LONG_RUN, partial(_unfinished, content=bytes(34), most=1000)),
        Attack("big-refused", "4", LONG_RUN, partial(_big_refused, what="packets of no protocol", data=bytes(MOST))),
        Attack("big-hellos", "4", LONG_RUN, partial(_big_refused, what="HELLOs of 16,000 spans", data=hello(SPANS))),
        Attack("hello-spans", "5", LONG_RUN, _hello_spans),
        Attack("ping-only", "6", SHORT_RUN, _ping_only, {"patience_s": 5.0}),
        Attack("pass-the-offer", "6", LONG_RUN, _pass_the_offer, {"patience_s": 6.0}),
        Attack("idle-handshakes", "6", LONG_RUN, _idle_handshakes, {"patience_s": 12.0, "files": 1024}),
        Attack("silent-10000", "6", SHORT_RUN, _silent),
        Attack("stolen-session", "7", LONG_RUN, _stolen_session),
        Attack("replayed-join", "7", LONG_RUN, _replayed_join),
        Attack("hello-farewell", "12", SHORT_RUN, _hello_farewell),
    ]


# -- 1, 2: the evaluator


def _liar(arena: Arena, what: str, hook: Hook) -> str:
    """A peer requests the evaluator before the honest workers, computes honestly and then falsifies the results."""
    with Proxy(arena.port, hook) as proxy:
        arena.captive(proxy.port, "--clients", 1)
        with arena.under_attack():
            arena.wait_for(lambda: any(type_of(data) == POST for data in list(proxy.said)) or proxy.declined, 15)
            since = time.time()
            workers = arena.halves()
            arena.join(workers[-1], since, START_S)
            arena.wait_for(lambda: not arena.is_open or all(w.poll() is not None for w in workers), START_S)
        answer = "offered" if proxy.was_offered else f"declined: {', '.join(sorted(set(proxy.declined))) or 'hung up'}"
    return f"HELLO for the evaluator alone ({answer}), EVALUATIONs with {what}"


def _with(value: bytes, name: str, found: dict[str, bytes]) -> dict[str, bytes]:
    return found | {name: value}


def _flipped(digest: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in digest)


def _evaluator_of_run(arena: Arena) -> str:
    """Pose as the evaluator of `seedbus run --workers`, without a client: there is no time to load anything."""
    if not arena.port:
        return "nothing: it listens at no TCP port"
    assert arena.reference is not None
    with arena.under_attack() as until:
        try:
            with Peer(arena.port) as peer:
                stay = Stay(peer, hello(count=NO_CLIENTS, evaluates=True))
                if not stay.join(arena.reference.proofs):
                    return "HELLO for the evaluator alone (offered), JOIN (refused)"
                with suppress(OSError):
                    _evaluate(arena, stay, until + 10)
        except (OSError, Refused) as error:
            return f"HELLO for the evaluator alone ({error})"
    return "HELLO for the evaluator alone (offered), JOIN, EVALUATIONs with accuracy 0.9999"


def _evaluate(arena: Arena, stay: Stay, until: float) -> None:
    """Answer COMMITs with false evaluations. Raises `OSError` once the server has ended."""
    answered, body = 0, [["loss", "accuracy"], struct.pack("<2d", 0.001, 0.9999), [["x", bytes(16)]]]
    stay.peer.socket.settimeout(1.0)
    while arena.is_open and time.time() < until:
        try:
            data = stay.peer.receive()
        except TimeoutError:
            stay.say(PING)
            continue
        if type_of(data) == DELIVER:
            frames = deliveries(data[9:])
            found = [
                [envelope(EVALUATION, EVALUATOR, body, *opened(each)[2:4])] if tag_of(each) == COMMIT else []
                for each in frames
            ]
            stay.say(ANSWER, pack_answers(answered, found))
            answered += len(frames)


# -- 3: the first JOIN


def _false_join(arena: Arena) -> str:
    assert arena.reference is not None
    selftest, x0, *losses = arena.reference.proofs
    try:
        with Peer(arena.port) as peer:
            stay = Stay(peer, hello(count=1))
            is_welcome = stay.join([selftest, _flipped(x0), *losses])
            with suppress(OSError):
                stay.say(FAREWELL)
            return f"HELLO (offered), JOIN with a false x₀ ({'welcome' if is_welcome else 'refused'}), FAREWELL"
    except (OSError, Refused) as error:
        return f"HELLO for a client ({error})"


def _first_join(arena: Arena) -> str:
    with arena.under_attack():
        sent = _false_join(arena)
        since = time.time()
        workers = arena.halves()
        arena.join(workers[-1], since, START_S)
    return sent


def _first_join_of_run(arena: Arena) -> str:
    if not arena.port:
        return "nothing: it listens at no TCP port"
    with arena.under_attack():
        return _false_join(arena)


# -- 4, 5: memory and time


def _unfinished(arena: Arena, content: bytes, most: int) -> str:
    """Connections that each send a message without an end, in frames with this content."""
    one = frame(content, MORE)
    data = one * (QUIET_BYTES // len(one))
    arena.begin()
    with arena.under_attack() as until, _peers() as open_one:
        count, taken = _pump(arena, open_one, data, most, until)
    return f"{count} connections, {taken / 1e6:,.0f} MB of {len(content)}-byte MORE frames"


def _big_refused(arena: Arena, what: str, data: bytes) -> str:
    """Packets of maximum length that are refused, as many per connection as the server tolerates."""
    arena.begin()
    with arena.under_attack() as until, _peers() as open_one:
        count, taken = _pump(arena, open_one, frame(data) * 90, 200, until, threads=4)
    return f"{count} connections, {taken / 1e6:,.0f} MB of {what}"


def _hello_spans(arena: Arena) -> str:
    """HELLOs with as many spans as possible."""
    data = frame(hello(SPANS))
    sent = [0] * 4
    arena.begin()

    def play(number: int, until: float) -> None:
        while time.time() < until and arena.is_open:
            with suppress(OSError), Peer(arena.port) as peer:
                while time.time() < until and arena.is_open:
                    peer.socket.sendall(data)
                    sent[number] += 1

    with arena.under_attack() as until:
        _together(lambda number: play(number, until), len(sent))
    return f"{sum(sent)} HELLOs of {len(data) // 1000} kB with 16,000 spans, over {len(sent)} connections"


def _hello_farewell(arena: Arena) -> str:
    """Take offers and give them back."""
    counts = [0] * 4
    words = b"\x1b]0;owned\x07 [/nope] " * 28

    def play(number: int, until: float) -> None:
        while time.time() < until and arena.is_open:
            with suppress(OSError, Refused), Peer(arena.port) as peer:
                for _ in range(99):
                    Stay(peer, hello(count=1)).say(FAREWELL, words)
                    counts[number] += 1
                    if time.time() > until:
                        return
            time.sleep(0.001)

    with arena.under_attack() as until:
        _together(lambda number: play(number, until), len(counts))
    since = time.time()
    arena.join(arena.begin()[-1], since, START_S)
    return f"{sum(counts)} times HELLO and FAREWELL"


# -- 6: stalls


def _ping_only(arena: Arena) -> str:
    """A member behaves honestly until it has joined, then only sends PINGs; an honest worker could replace it."""
    with Proxy(arena.port, silent) as proxy:
        arena.honest("--clients", f"0-{HALF - 1}")
        arena.wait_for(lambda: arena.joined())  # with the evaluator, if clients may host it
        arena.captive(proxy.port, "--clients", f"{HALF}-{CLIENTS - 1}")
        with arena.under_attack():
            if not arena.wait_for(lambda: len(arena.joined()) > 1):
                return "nothing: it did not get in"
            since = time.time()
            other = arena.honest("--clients", f"{HALF}-{CLIENTS - 1}")
            arena.join(other, since, STALL_S)
    return f"HELLO, JOIN, PINGs for {STALL_S:.0f} s"


def _pass_the_offer(arena: Arena) -> str:
    """Peers take an offer, keep it without joining, and request it again when it is withdrawn."""
    offers = [0] * 6
    is_over = threading.Event()

    def play(number: int) -> None:
        while not is_over.wait(0.01) and arena.is_open:
            with suppress(OSError), Peer(arena.port) as peer:
                for _ in range(90):  # after a few more refusals the server would close the connection
                    with suppress(Refused):
                        stay = Stay(peer, hello())
                        offers[number] += 1
                        _linger(stay, is_over)
                    if is_over.wait(0.1):
                        return

    victim = arena.begin()[1]
    with arena.under_attack():
        threads = [threading.Thread(target=play, args=(number,), daemon=True) for number in range(len(offers))]
        for thread in threads:
            thread.start()
        _replace(arena, victim)
        is_over.set()
        for thread in threads:
            thread.join()
    return f"six strangers, {sum(offers)} offers taken and none joined"


def _linger(stay: Stay, is_over: threading.Event) -> None:
    """Send PINGs until the server ends the stay."""
    stay.peer.socket.settimeout(0.5)
    beat = 0.0
    while not is_over.is_set():
        if time.time() > beat:
            stay.say(PING)
            beat = time.time() + 1
        with suppress(TimeoutError):
            if type_of(stay.peer.receive()) in (DECLINE, POST):
                return


def _idle_handshakes(arena: Arena) -> str:
    victim = arena.begin()[1]
    with arena.under_attack(), _crowd(arena, 2000, ["127.0.0.1"]) as count:
        arena.wait_for(lambda: count() >= 2000, 3)
        most = count()
        _replace(arena, victim)
    return f"2,000 silent connections kept up ({most} stood after 3 s), a worker killed"


def _worker_killed(arena: Arena) -> str:
    """The control for attacks that kill a worker: nothing prevents its successor from joining."""
    victim = arena.begin()[1]
    with arena.under_attack():
        _replace(arena, victim)
    return "nothing; a worker killed"


def _replace(arena: Arena, victim: subprocess.Popen[bytes], others: Callable[[], int] = lambda: 0) -> None:
    since = time.time()
    arena.kill(victim)
    arena.join(arena.honest("--clients", f"{HALF}-{CLIENTS - 1}"), since, STALL_S, others=others)


def _silent(arena: Arena) -> str:
    arena.honest("--clients", f"0-{HALF - 1}")
    arena.wait_for(lambda: arena.joined())
    with arena.under_attack(), _crowd(arena, 10_000, [f"127.0.0.{n}" for n in range(1, 9)]) as count:
        arena.wait_for(lambda: count() >= 9_900, 10)
        most = count()
        since = time.time()
        arena.join(arena.honest("--clients", f"{HALF}-{CLIENTS - 1}"), since, STALL_S)
    return f"10,000 silent connections kept up ({most} stood when a worker came)"


# -- 7: others' words


def _stolen_session(arena: Arena) -> str:
    """Send HELLOs with the session of a worker whose packets the attacker can read."""
    stolen: set[bytes] = set()
    with Proxy(arena.port) as proxy, ExitStack() as stack:
        arena.begin(arena.port, proxy.port)
        before = arena.gone()
        with arena.under_attack() as until:
            stays: list[Stay] = []
            while time.time() < until and arena.is_open:
                session = proxy.session()
                if session and session not in stolen:
                    stolen.add(session)
                    with suppress(OSError, Refused):
                        stays.append(Stay(stack.enter_context(Peer(arena.port)), hello(session=session)))
                for stay in list(stays):
                    try:
                        stay.say(PING)
                    except OSError:
                        stays.remove(stay)
                time.sleep(0.2)
        evicted = arena.gone() - before
        arena.wait_for(lambda: not arena.is_open, 60)  # the worker needs the proxy until then
    return f"{len(stolen)} HELLOs with a worker's session ({evicted} stays ended)"


def _replayed_join(arena: Arena) -> str:
    """Replay a worker's HELLO and JOIN once that worker is gone."""
    words: list[str] = []
    is_in, is_over = threading.Event(), threading.Event()
    with Proxy(arena.port) as proxy:
        victim = arena.begin(arena.port, proxy.port)[1]
        greeted = next(data for data in proxy.said if type_of(data) == HELLO)
        (join,) = entries(next(data for data in proxy.said if type_of(data) == POST)[9:])

        def play() -> None:
            while not words and not is_over.wait(0.05):
                with suppress(OSError, Refused), Peer(arena.port) as peer:
                    stay = Stay(peer, greeted)
                    is_in.set()
                    try:
                        words.append("welcome" if stay.post(join) else "refused")
                    finally:
                        if words != ["welcome"]:
                            is_in.clear()
                    _linger(stay, is_over)

        with arena.under_attack():
            thread = threading.Thread(target=play, daemon=True)
            thread.start()
            _replace(arena, victim, others=lambda: int(is_in.is_set()))
            is_over.set()
            thread.join()
    return f"a worker's HELLO and JOIN, once it was gone ({words[0] if words else 'no offer, or hung up'})"


# -- many connections


def _together(play: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=play, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _peers() -> Iterator[Callable[[int], Peer]]:
    """Yield a function that opens connections; all are closed at the end."""
    with ExitStack() as stack:
        yield lambda port: stack.enter_context(Peer(port))


def _pump(
    arena: Arena, open_one: Callable[[int], Peer], data: bytes, most: int, until: float, *, threads: int = 1
) -> tuple[int, int]:
    """Send over many connections at once and keep them open; return their number and the bytes that were accepted."""
    counts, before = [[0, 0] for _ in range(threads)], arena.resident_mb

    def play(number: int) -> None:
        count = counts[number]
        with selectors.DefaultSelector() as selector:
            while time.time() < until and arena.is_open and arena.resident_mb - before < MOST_GROWTH_MB:
                is_full = count[0] >= most // threads
                if not is_full:
                    with suppress(OSError):
                        peer = open_one(arena.port)
                        peer.socket.setblocking(False)
                        selector.register(peer.socket, selectors.EVENT_WRITE, memoryview(data))
                        count[0] += 1
                count[1] += _push(selector, 0.05 if is_full else 0.0)
                if is_full and not selector.get_map():
                    time.sleep(0.05)

    _together(play, threads)
    return sum(count for count, _ in counts), sum(taken for _, taken in counts)


def _push(selector: selectors.BaseSelector, within_s: float) -> int:
    """Send more of each socket's data; return how many bytes were accepted."""
    sent = 0
    for key, _ in selector.select(within_s):
        one, left = cast(socket.socket, key.fileobj), cast(memoryview, key.data)
        try:
            size = one.send(left[: 2**20])
        except BlockingIOError:
            continue
        except OSError:  # the server has hung up
            size = len(left)
        else:
            sent += size
        if size == len(left):
            selector.unregister(one)
        else:
            selector.modify(one, selectors.EVENT_WRITE, left[size:])
    return sent


@contextmanager
def _crowd(arena: Arena, most: int, sources: Sequence[str]) -> Iterator[Callable[[], int]]:
    """Keep up a number of silent connections, reopened when the server closes them; yield a function to count them."""
    selector, is_over = selectors.DefaultSelector(), threading.Event()
    sockets: set[socket.socket] = set()

    def play() -> None:
        number = 0
        while not is_over.is_set() and arena.is_open:
            for _ in range(min(200, most - len(sockets))):
                one = socket.socket()
                one.setblocking(False)
                number += 1
                with suppress(OSError):
                    one.bind((sources[number % len(sources)], 0))
                    with suppress(BlockingIOError):
                        one.connect(("127.0.0.1", arena.port))
                    selector.register(one, selectors.EVENT_READ)
                    sockets.add(one)
                    continue
                one.close()
            for key, _ in selector.select(0.02):
                one = key.fileobj  # type: ignore[assignment]
                with suppress(BlockingIOError):
                    try:
                        if one.recv(4096):  # the server's greeting
                            continue
                    except OSError as error:
                        if isinstance(error, BlockingIOError):
                            raise
                    selector.unregister(one)
                    sockets.discard(one)
                    one.close()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield lambda: len(sockets)
    finally:
        is_over.set()
        thread.join()
        selector.close()
        for one in sockets:
            one.close()
