"""Connections to a port of this machine that come and go, one after the other.

    python churn.py PORT SECONDS MOST

It says when a thousand have come and gone, and ends after SECONDS, or after MOST connections.
"""

from __future__ import annotations

import socket
import sys
import time
from contextlib import suppress

from hostile_peers import HOST, greeting, ready


def come_and_go(port: int, until_s: float, most: int) -> None:
    data = greeting() + ready()
    for number in range(most):
        if number == 1000:
            print("a thousand", flush=True)
        if time.monotonic() > until_s:
            return
        with suppress(OSError), socket.create_connection((HOST, port), 5.0) as connection:
            connection.sendall(data)


def main() -> None:
    port, seconds, most = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    until_s = time.monotonic() + seconds
    come_and_go(port, until_s, most)


if __name__ == "__main__":
    main()
