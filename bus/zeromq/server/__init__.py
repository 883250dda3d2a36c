"""The server's end of the ZeroMQ transport.

One ROUTER socket, a session for every process of followers, and limits for what strangers may use.

Doors: `hub`, `session`.
"""
