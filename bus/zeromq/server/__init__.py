"""The server's end of the ZeroMQ transport.

One ROUTER socket, a session for every worker process, and limits on what strangers may use.

Doors: `hub`, `router_socket`, `session`.
"""
