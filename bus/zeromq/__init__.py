"""The ZeroMQ transport: a hub at the server, and a link in every process of followers."""

from seedbus.bus.zeromq.hub import Hub
from seedbus.bus.zeromq.link import follow

__all__ = ["Hub", "follow"]
