"""The ZeroMQ transport: a hub at the server, and a link in every worker process.

Doors: `keys`, `sockets`, `worker`.
"""

from seedbus.bus.zeromq.server.hub import Hub
from seedbus.bus.zeromq.server.router_socket import Entrance
from seedbus.bus.zeromq.server.session import Limits
from seedbus.bus.zeromq.worker.link import Joining
from seedbus.bus.zeromq.worker.serve import follow

__all__ = ["Entrance", "Hub", "Joining", "Limits", "follow"]
