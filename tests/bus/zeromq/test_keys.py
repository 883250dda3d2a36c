"""Keys: their files, the table of authorised keys, and the processes that they admit."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from clusters import ClientsThread, ServerThread
from commands import Command
from gates import Gate
from hostile_packets import column, hello
from processes import wait_for
from tcp_proxy import CountingProxy
from wire_bytes import FAULTS, bytes_on_wire
from worlds import HISO, lossy, outcome

from seedbus.bus import HostRequest
from seedbus.bus.errors import BadKey, SentAway, ServerGone
from seedbus.bus.transport import NO_CLIENTS, STRANGER, Rights
from seedbus.bus.zeromq import Hub, sockets
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.keys import (
    TABLE,
    Authenticator,
    Entry,
    Identity,
    KeyPair,
    Table,
    clients_of,
    public_key,
    read_table,
    write_table,
)
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.access import server_keys

WHAT = lossy(stop={"rounds": 60})
A, B = (f'public = "{letter * 40}"' for letter in "ab")


# -- files


@pytest.fixture(params=[0o000, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_a_secret_key_is_readable_by_its_owner_only_for_any_umask(tmp_path: Path, umask: None) -> None:
    pair = KeyPair.new()
    pair.save(tmp_path, "one")
    write_table(tmp_path / TABLE, [Entry("one", pair.public)])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"one.secret": 0o600, "one.public": 0o644, TABLE: 0o600}
    assert KeyPair.load(tmp_path / "one.secret") == pair and pair.secret.decode() not in repr(pair)
    assert read_table(tmp_path / TABLE) == [Entry("one", pair.public)]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o610])
def test_a_secret_key_readable_by_others_is_refused(tmp_path: Path, mode: int) -> None:
    KeyPair.new().save(tmp_path, "one")
    (tmp_path / "one.secret").chmod(mode)
    with pytest.raises(BadKey, match=rf"one\.secret cannot be used \(others may read it \(mode {mode:o}\)\); expected"):
        KeyPair.load(tmp_path / "one.secret")


def test_the_file_of_a_secret_key_is_no_public_key_nor_the_reverse(tmp_path: Path) -> None:
    KeyPair.new().save(tmp_path, "one")
    with pytest.raises(BadKey, match="it is the file of a secret key"):
        public_key(str(tmp_path / "one.secret"))
    with pytest.raises(BadKey, match="it is the file of a public key"):
        KeyPair.load(tmp_path / "one.public")


def test_a_path_of_forty_characters_is_not_taken_for_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = KeyPair.new()
    monkeypatch.chdir(tmp_path)
    for ending in (".public", ".key"):
        Path("a" * (40 - len(ending)) + ending).write_bytes(pair.public)
        assert public_key("a" * (40 - len(ending)) + ending) == pair.public
    assert public_key(pair.public.decode()) == pair.public
    with pytest.raises(BadKey, match="no such file"):
        public_key("b" * 33 + ".public")


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_secret_key_never_overwrites_a_file(tmp_path: Path, kind: str) -> None:
    dear = tmp_path / "dear"
    dear.write_text("dear")
    secret = tmp_path / "keys" / "one.secret"
    secret.parent.mkdir()
    secret.symlink_to(dear) if kind == "link" else secret.write_text("dear")
    with pytest.raises(BadKey, match="it is there already"):
        KeyPair.new().save(secret.parent, "one")
    assert dear.read_text() == secret.read_text() == "dear"


class Hours:
    """A clock that a test moves.

    Attributes:
        now_s: what it shows."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    clock = Hours()
    monkeypatch.setattr("seedbus.bus.zeromq.keys.wall_seconds", clock)
    return clock


def _given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 4242, -1)


UNTRUSTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "written by a group": (
        lambda path: path.chmod(0o620),
        "others may write it (mode 620)); expected mode 600: ",
    ),
    "written by others": (lambda path: path.chmod(0o602), "others may write it (mode 602)); expected mode 600: `chmod"),
    "of another user": (_given_away, "it belongs to user 4242); expected one of user 0, whose this process is, or of"),
    "in a folder of others": (lambda path: path.parent.chmod(0o777), "(mode 777)); expected `chmod go-w "),
    "in a folder of another user": (lambda path: _given_away(path.parent), "keys belongs to user 4242); expected one"),
}


@pytest.mark.parametrize("kind", UNTRUSTED)
@pytest.mark.parametrize("name", [TABLE, "server.secret"])
def test_a_table_or_a_key_that_others_can_change_is_not_trusted(
    tmp_path: Path, seedbus: Command, kind: str, name: str
) -> None:
    """A server of root had read a table that belonged to another user."""
    keys = tmp_path / "keys"
    server_keys(keys)
    write_table(keys / TABLE, [Entry("one", b"a" * 40)])
    change, sentence = UNTRUSTED[kind]
    change(keys / name)
    serve = ("server", "quickstart", "-q", "--bind", "tcp://127.0.0.1:*", "--keys", keys, "--out", tmp_path / "run")
    for command in (serve, ("keys", "list", "--keys", keys)):
        said = seedbus(*command)
        assert said.code == 2 and said.err.startswith(f"seedbus: {keys}"), said.err
        assert said.err.count("\n") == 1, said.err
        assert sentence in said.err, said.err
    assert not (tmp_path / "run").exists()
    keys.chmod(0o1777)
    if "folder of others" in kind:
        assert seedbus("keys", "list", "--keys", keys).code == 0, "as in /tmp, nobody replaces files of others"


def test_a_key_may_be_reached_by_a_link_and_is_checked_where_it_leads(tmp_path: Path) -> None:
    """Orchestrators mount secrets as links."""
    pair = KeyPair.new()
    pair.save(tmp_path / "mounted", "one")
    (tmp_path / "one.secret").symlink_to(tmp_path / "mounted" / "one.secret")
    assert KeyPair.load(tmp_path / "one.secret") == pair
    (tmp_path / "mounted").chmod(0o777)
    with pytest.raises(BadKey, match=r"others may write its folder .*mounted"):
        KeyPair.load(tmp_path / "one.secret")
    (tmp_path / "mounted").chmod(0o755)
    links = tmp_path / "links"
    links.mkdir()
    (links / "one.secret").symlink_to(tmp_path / "mounted" / "one.secret")
    links.chmod(0o777)
    with pytest.raises(BadKey, match=r"others may write its folder .*links"):
        KeyPair.load(links / "one.secret")  # whose link others may replace


def test_a_table_whose_folder_others_may_write_from_now_on_is_trusted_no_longer(tmp_path: Path, hours: Hours) -> None:
    path = tmp_path / TABLE
    write_table(path, [Entry("one", b"a" * 40)])
    table = Table(path)
    assert table.admits("a" * 40) and not table.complaint
    tmp_path.chmod(0o777)
    assert table.admits("a" * 40) and f"others may write its folder {tmp_path}" in table.complaint
    hours.now_s = 61.0
    assert not table.admits("a" * 40)
    tmp_path.chmod(0o755)
    assert table.admits("a" * 40) and not table.complaint


MISHAPS: dict[str, Callable[[Path], object]] = {
    "absent": Path.unlink,
    "half written": lambda path: path.write_text(path.read_text()[:80]),
    "of another user": _given_away,
    "written by others": lambda path: path.chmod(0o666),
    "a folder": lambda path: (path.unlink(), path.mkdir()),  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("kind", MISHAPS)
def test_the_last_table_that_could_be_read_stays_in_force_for_a_minute(tmp_path: Path, hours: Hours, kind: str) -> None:
    path, public = tmp_path / TABLE, "a" * 40
    write_table(path, [Entry("one", public.encode(), ((0, 3),), True)])
    table = Table(path)
    hours.now_s = 1000.0
    assert table.rights(public) == Rights(((0, 3),), True) and not table.complaint
    MISHAPS[kind](path)
    for hours.now_s in (1000.1, 1059.0):
        assert table.admits(public) and table.rights(public) == Rights(((0, 3),), True)
        assert table.complaint.startswith(str(path)) and table.complaint.endswith("stays in force for 60 s at most")
    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
    write_table(path, [Entry("one", public.encode())])
    hours.now_s = 1100.0
    assert table.rights(public) == STRANGER and not table.complaint, "it is there again"
    MISHAPS[kind](path)
    for hours.now_s in (1101.0, 1161.0):
        admitted = table.admits(public)
    assert not admitted and table.complaint.endswith("so no key is let in any more"), "a deleted table keeps no key in"


@pytest.mark.parametrize("text", ["", "# Keys that"])
def test_a_file_that_an_editor_writes_in_parts_takes_no_key_out(tmp_path: Path, hours: Hours, text: str) -> None:
    path, other = tmp_path / TABLE, KeyPair.new()
    entries = [Entry("one", b"a" * 40), Entry("two", b"b" * 40)]
    write_table(path, entries)
    whole, table = path.read_text(), Table(path)
    for content in (text, whole):  # nothing is what is there at first, and a table as well
        path.write_text(content)
        hours.now_s += 0.2
        assert table.admits("a" * 40) and table.admits("b" * 40) and not table.complaint
    write_table(path, [entries[0], Entry("three", other.public)])
    assert table.admits(other.public.decode()) and table.admits("b" * 40), "a new key is let in at once"
    hours.now_s += 0.6
    assert table.admits("a" * 40) and not table.admits("b" * 40), "and a revoked one soon is not"


@pytest.mark.parametrize("spans", [None, (), ((0, 3), (7, 7))])
def test_the_clients_of_a_key_are_read_as_they_were_written(
    tmp_path: Path, spans: tuple[tuple[int, int], ...] | None
) -> None:
    write_table(tmp_path / TABLE, [Entry("one", b"a" * 40, spans, True)])
    (entry,) = read_table(tmp_path / TABLE)
    assert entry.spans == spans == clients_of(entry.clients)


def test_a_failing_lookup_admits_no_key_and_ends_no_thread() -> None:
    def fail(key: str) -> bool:
        raise OSError("no such table")

    context = zmq.Context[Any]()
    doorkeeper = Authenticator(context, fail)
    try:
        for key in (b"a" * 40, b"\xff" * 40, b""):
            assert doorkeeper.callback("seedbus", key) is False
        server, client = KeyPair.new(), KeyPair.new()
        router = sockets.make(context, zmq.ROUTER)
        router.curve_server, router.zap_domain = True, b"seedbus"
        router.curve_publickey, router.curve_secretkey = server.public, server.secret
        router.bind("tcp://127.0.0.1:*")
        for _ in range(3):
            dealer = sockets.make(context, zmq.DEALER, identity=Identity(client, server.public))
            dealer.connect(router.get_string(zmq.LAST_ENDPOINT))
            assert not dealer.poll(50, zmq.POLLOUT), "it is not let in"
            dealer.close()
        assert doorkeeper.is_alive
        router.close()
    finally:
        doorkeeper.close()
        context.term()


# -- over the wire


class Keyed:
    """A folder with a server's keys and the table of authorised keys.

    Attributes:
        holder: the key pair with all rights."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, server_keys(folder)
        self.holder = KeyPair.new()
        self.entries = {"holder": Entry("holder", self.holder.public, None, True)}
        self.write()

    def write(self) -> None:
        write_table(self.folder / TABLE, self.entries.values())

    def authorise(self, name: str, spans: Any = None) -> Identity:
        pair = KeyPair.new()
        self.entries[name] = Entry(name, pair.public, spans, False)
        self.write()
        return self.shows(pair)

    def revoke(self, name: str) -> None:
        del self.entries[name]
        self.write()

    def shows(self, pair: KeyPair) -> Identity:
        return Identity(pair, self.server.public)

    @property
    def all_rights(self) -> Identity:
        return self.shows(self.holder)


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path / "keys")


@pytest.fixture
def serving(tmp_path: Path, keyed: Keyed) -> Callable[..., ServerThread]:
    def start(what: Any = WHAT, **placement: Any) -> ServerThread:
        options: dict[str, Any] = {"keys": keyed.folder, "evaluator": "keys", "heartbeat_s": 1.0} | placement
        return ServerThread(what, tmp_path / "run", **options)

    return start


@pytest.mark.slow
def test_the_ledger_holds_every_byte_of_an_encrypted_wire(keyed: Keyed, serving: Callable[..., ServerThread]) -> None:
    what = lossy(algorithm=HISO, stop={"rounds": 60}, faults=FAULTS)
    with serving(what, expect=2) as server, CountingProxy(server.port) as proxy:
        other = keyed.authorise("other")
        clients = [ClientsThread(what, proxy.endpoint, identity=each) for each in (keyed.all_rights, other)]
        results = server.results()
        for client in clients:
            client.join()
            assert client.failure is None
        counted = proxy.up, proxy.down
    assert (bytes_on_wire(results, up=True), bytes_on_wire(results, up=False)) == counted


@pytest.mark.slow
def test_no_process_joins_without_an_authorised_key(
    tmp_path: Path, keyed: Keyed, serving: Callable[..., ServerThread]
) -> None:
    stranger, other_server = KeyPair.new(), KeyPair.new()
    identities = [None, keyed.shows(stranger), Identity(keyed.holder, other_server.public)]
    with serving() as server:
        rejected = [ClientsThread(WHAT, server.watcher.endpoint, identity=each, patience_s=5.0) for each in identities]
        for each in rejected:
            each.join()
        plain, unknown, mistaken = (each.failure for each in rejected)
        assert isinstance(plain, ServerGone) and "--server-key is needed" in str(plain)
        assert isinstance(unknown, SentAway) and unknown.reason == "not-authorised"
        assert isinstance(mistaken, ServerGone) and "another key than --server-key" in str(mistaken)
        wait_for(lambda: any(refusal.reason == "not-authorised" for refusal in server.watcher.refusals))
        assert not server.watcher.joined
        keyed.entries["late"] = Entry("late", stranger.public, None, True)
        keyed.write()
        late = ClientsThread(WHAT, server.watcher.endpoint, identity=keyed.shows(stranger))
        results = server.results()
        late.join()
        assert late.failure is None, "it was authorised while the server ran"
    refusals = results.summary["refusals"]
    assert set(refusals["not-authorised"]) == {f"key {stranger.public.decode()}"}
    assert set(refusals["no-handshake"]) == {"a stranger"}
    in_memory = run(WHAT, tmp_path / "memory")
    assert results.digest == in_memory.digest and outcome(results)[1] == outcome(in_memory)[1]


@pytest.mark.slow
def test_a_key_hosts_its_clients_and_has_only_its_rights(keyed: Keyed, serving: Callable[..., ServerThread]) -> None:
    few, no_evaluator = keyed.authorise("few", ((0, 3),)), keyed.authorise("no-evaluator")
    with serving() as server:
        endpoint = server.watcher.endpoint
        asks = ClientsThread(WHAT, endpoint, HostRequest(((0, 4),)), identity=few)
        asks.join()
        assert isinstance(asks.failure, SentAway) and asks.failure.reason == "not-authorised"
        assert "not authorised for client 4" in str(asks.failure)
        wishes = ClientsThread(WHAT, endpoint, HostRequest((), NO_CLIENTS, True), identity=no_evaluator, patience_s=5.0)
        wishes.join()
        assert isinstance(wishes.failure, SentAway) and wishes.failure.reason == "no-clients"
        hosts = [ClientsThread(WHAT, endpoint, identity=few)]
        hosts.append(ClientsThread(WHAT, endpoint, HostRequest(((4, 7),)), identity=keyed.all_rights))
        server.results()
        for host in hosts:
            host.join()
            assert host.failure is None
    joined = {facts["clients"] for event, facts in server.watcher.events if event == "joined"}
    assert joined == {"clients 0…3", "clients 4…7 and the evaluator"}


@pytest.mark.slow
def test_a_revoked_key_is_gone_within_two_heartbeats_and_another_takes_its_place(
    tmp_path: Path, keyed: Keyed, serving: Callable[..., ServerThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, endangered = Gate(), keyed.authorise("endangered")
    gone: list[int] = []  # after each heartbeat
    tick = Hub._tick

    def counted(hub: Hub) -> None:
        tick(hub)
        gone.append(server.watcher.gone)

    monkeypatch.setattr(Hub, "_tick", counted)
    with serving() as server:
        stays = ClientsThread(
            WHAT, server.watcher.endpoint, HostRequest(((0, 5),)), identity=keyed.all_rights, gate=gate
        )
        goes = ClientsThread(WHAT, server.watcher.endpoint, HostRequest(((6, 7),)), identity=endangered)
        gate.open_to(20)
        wait_for(lambda: server.watcher.rounds >= 20)
        keyed.revoke("endangered")
        before = len(gone)
        wait_for(lambda: 1 in gone)
        assert gone.index(1) - before < 2
        goes.join()
        assert isinstance(goes.failure, SentAway) and goes.failure.reason == "not-authorised", "not that all is gone"
        comes = ClientsThread(WHAT, server.watcher.endpoint, HostRequest(((6, 7),)), identity=keyed.authorise("new"))
        gate.open_to(2**32)
        results = server.results()
        for each in (stays, comes):
            each.join()
            assert each.failure is None
    (why,) = [facts["why"] for event, facts in server.watcher.events if event == "gone"]
    assert why.endswith("its key was revoked, or has other rights now")
    assert results.digest == run(WHAT, tmp_path / "memory").digest


@pytest.mark.slow
def test_a_table_that_is_absent_or_half_written_for_a_moment_ends_no_process(
    tmp_path: Path, keyed: Keyed, serving: Callable[..., ServerThread]
) -> None:
    gate, table = Gate(), keyed.folder / TABLE
    other = keyed.authorise("other", ((6, 7),))
    with serving() as server:
        endpoint = server.watcher.endpoint
        host = ClientsThread(WHAT, endpoint, HostRequest(((0, 5),)), identity=keyed.all_rights, gate=gate)
        gate.open_to(0)
        table.unlink()
        wait_for(lambda: any("stays in force" in str(each.detail) for each in server.watcher.refusals))
        late = ClientsThread(WHAT, endpoint, HostRequest(((6, 7),)), identity=other)
        gate.open_to(20)
        wait_for(lambda: server.watcher.rounds >= 20)
        table.write_text("[[key")
        gate.open_to(40)
        wait_for(lambda: server.watcher.rounds >= 40)
        keyed.write()
        gate.open_to(2**32)
        results = server.results()
        for each in (host, late):
            each.join()
            assert each.failure is None
        assert not server.watcher.gone
    assert results.digest == run(WHAT, tmp_path / "memory").digest


@pytest.mark.parametrize("text", ["x = " + "9" * 5000, "[" * 100_000, '"\\ud800" = 1'])
def test_an_unreadable_table_is_reported_and_changes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / TABLE
    write_table(path, [Entry("known", KeyPair.new().public)])
    table = Table(path)
    assert not table.admits("a" * 40) and not table.complaint
    path.write_text(text)
    assert not table.admits("a" * 40) and table.complaint.isprintable() and str(tmp_path) in table.complaint


def test_a_new_secret_key_replaces_the_public_half_of_a_deleted_one(tmp_path: Path) -> None:
    server_keys(tmp_path)
    (tmp_path / "server.secret").unlink()
    assert server_keys(tmp_path).public == (tmp_path / "server.public").read_bytes().strip()


@pytest.mark.slow
def test_a_routing_id_equal_to_a_key_does_not_give_its_rights(
    keyed: Keyed, serving: Callable[..., ServerThread]
) -> None:
    """A name chosen by a peer serves only ZeroMQ's routing."""
    few = keyed.authorise("few", ((0, 3),))
    with serving() as server, zmq.Context() as context:
        dealer = sockets.make(context, zmq.DEALER, identity=few)
        dealer.routing_id = keyed.holder.public
        dealer.set_string(zmq.METADATA, f"X-User-Id:{keyed.holder.public.decode()}")
        dealer.connect(server.watcher.endpoint)
        dealer.send(hello(b"", column(0, 7), 0, 1))
        assert dealer.poll(10_000)
        answer = packet.read(dealer.recv())
        assert packet.read_decline(answer.content)[0] == "not-authorised"
        dealer.close()
        ClientsThread(WHAT, server.watcher.endpoint, identity=keyed.all_rights)
        server.results()
