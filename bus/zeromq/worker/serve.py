"""A process's link, served until its run is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq

from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import RemoteError
from seedbus.bus.transport import Recruit
from seedbus.bus.zeromq.worker.link import Joining, Link
from seedbus.bus.zeromq.worker.worker_thread import WorkerThread

LATE_S = 1.0  # by which a wait ends too late if this process was stopped meanwhile, as by Ctrl-Z


def farewell_code(error: BaseException) -> str:
    """Return the word for an error in this process's FAREWELL, one of `packet.FAREWELLS`; its sentence stays here."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    return "server" if isinstance(error, RemoteError) else "failed"


def follow(
    joining: Joining,
    recruit: Recruit,
    *,
    context: zmq.Context[Any] | None = None,
    parent_pipe: int | None = None,
    code_of: Callable[[BaseException], str] = farewell_code,
) -> None:
    """Serve as followers until the run is over.

    Args:
        joining: which server to join.
        recruit: builds the followers for an offer.
        context: a context of ZeroMQ's to use; otherwise one is made, and terminated at the end.
        parent_pipe: a descriptor; when its other end is closed, this process ends too.
        code_of: returns the word that tells the hub which error ends this process.

    Raises:
        ServerGone: no server has been there for its `patience_s`.
        BadServer: the server sends packets that an honest hub would not send.
        SentAway: the server declines.
        BadEndpoint: its endpoint is not a server's address.
        Exception: `recruit` may raise others, which are passed on.
    """
    owns_context = context is None
    context = context or zmq.Context()
    worker_thread = WorkerThread()
    try:
        link = Link(context, joining, recruit, worker_thread)
        try:
            _serve(link, worker_thread, parent_pipe)
        except BaseException as error:
            link.give_up(code_of(error))
            raise
        finally:
            link.close()
    finally:
        worker_thread.close()
        if owns_context:
            context.term()


def _serve(link: Link, worker_thread: WorkerThread, parent_pipe: int | None) -> None:
    poller = zmq.Poller()
    for descriptor in (worker_thread.descriptor, parent_pipe):
        if descriptor is not None:
            poller.register(descriptor, zmq.POLLIN)
    socket, watched = None, 0
    while not link.is_over:
        if socket is not None and (socket is not link.socket or socket.closed):
            poller.unregister(socket)
            socket, watched = None, 0
        events = int(zmq.POLLIN) | (int(zmq.POLLOUT) if link.has_more_to_send else 0)
        if not link.socket.closed and events != watched:
            socket, watched = link.socket, events
            poller.register(socket, watched)
        now_s = wall_seconds()
        due_s = max(now_s, link.due_s)
        ready = dict(poller.poll(round((due_s - now_s) * 1000) + 1))
        late_s = wall_seconds() - due_s
        if parent_pipe is not None and parent_pipe in ready:
            return
        worker_thread.collect()
        _take_turn(link, ready, late_s)


def _take_turn(link: Link, ready: dict[Any, int], late_s: float) -> None:
    if link.is_over:  # what was collected has ended it
        return
    if late_s > LATE_S:
        link.paused(late_s)
    if link.socket in ready:
        link.drain()
        link.read()
    link.tick()
