"""What the operating system says about connections."""

from __future__ import annotations

import socket
import sys

import pytest

from seedbus.bus.zeromq.descriptors import BYTES_RECEIVED, counted


def test_only_linux_counts_the_bytes_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(b"five!")
            client.recv(5)
            assert counted(client.fileno(), BYTES_RECEIVED) == 5
            monkeypatch.setattr(sys, "platform", "darwin")
            monkeypatch.delattr(socket, "TCP_INFO")  # macOS has none
            assert counted(client.fileno(), BYTES_RECEIVED) is None
