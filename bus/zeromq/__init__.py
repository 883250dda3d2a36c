"""The ZeroMQ transport: a hub at the server, and a link in every process of followers."""

from seedbus.bus.zeromq.following import follow
from seedbus.bus.zeromq.hub import Hub
from seedbus.bus.zeromq.session import Limits

__all__ = ["Hub", "Limits", "follow"]
