"""A process's links, served in turn until its run is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import RemoteError
from seedbus.bus.transport import MOST_CLIENTS, HostRequest, Recruit
from seedbus.bus.zeromq.keys import Identity
from seedbus.bus.zeromq.worker.link import Link
from seedbus.bus.zeromq.worker.worker_thread import WorkerThread


def _quietly(event: str, **facts: Any) -> None:
    pass


def farewell_code(error: BaseException) -> str:
    """What a hub is told of an error that ends this process: one of `packet.FAREWELLS`, and nothing of its sentence."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    return "server" if isinstance(error, RemoteError) else "failed"


def follow(
    endpoint: str,
    wishes: Sequence[HostRequest],
    recruit: Recruit,
    *,
    patience_s: float = 60.0,
    context: zmq.Context[Any] | None = None,
    note: Callable[..., None] = _quietly,
    parent_pipe: int | None = None,
    most_clients: int = MOST_CLIENTS,
    code_of: Callable[[BaseException], str] = farewell_code,
    identity: Identity | None = None,
) -> None:
    """Serve as followers until the run is over: one link for each wish.

    patience_s: how long a server may be away; parent_pipe: a descriptor whose end ends this process too; most_clients:
    that
    an offer may hold where the wish was for a share; code_of: what the hub is told of an error that ends this process;
    identity: the keys to show, where the server asks for some.
    Raises `ServerGone`, `BadServer`, `Turned`, `BadEndpoint`, and whatever building followers raises.
    """
    own = context is None
    if context is None:
        context = zmq.Context()
        context.max_sockets = 65_535
    labour, poller = WorkerThread(), zmq.Poller()
    links: list[Link] = []
    try:
        for wish in wishes:
            options: dict[str, Any] = {
                "patience_s": patience_s,
                "note": note,
                "identity": identity,
                "is_watched": len(wishes) == 1,
            }
            links.append(Link(context, endpoint, wish, recruit, labour, most_clients=most_clients, **options))
        poller.register(labour.descriptor, zmq.POLLIN)
        if parent_pipe is not None:
            poller.register(parent_pipe, zmq.POLLIN)
        _serve(links, labour, poller, parent_pipe)
    except BaseException as error:
        for link in links:
            link.give_up(code_of(error))
        raise
    finally:
        for link in links:
            link.close()
        labour.close()
        if own:
            context.term()


def _serve(links: list[Link], labour: WorkerThread, poller: zmq.Poller, parent_pipe: int | None) -> None:
    registered: dict[Link, Any] = {}
    while not all(link.is_over for link in links):
        for link in links:
            before = registered.get(link)
            if before is not link.socket or before.closed:
                if before is not None:
                    poller.unregister(before)
                    registered.pop(link)
                if not link.socket.closed:
                    poller.register(link.socket, zmq.POLLIN)
                    registered[link] = link.socket
            if not link.socket.closed:
                poller.modify(link.socket, zmq.POLLIN | (zmq.POLLOUT if link.has_more_to_send else 0))
        due_s = min(link.due_s for link in links if not link.is_over) - wall_seconds()
        ready = dict(poller.poll(max(0, round(due_s * 1000) + 1)))
        if parent_pipe is not None and parent_pipe in ready:
            return
        labour.collect()
        for link in links:
            if link.is_over:
                continue
            if link.socket in ready:
                link.drain()
            link.read()
            link.tick()
