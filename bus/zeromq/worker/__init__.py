"""The worker's end of the ZeroMQ transport.

Each process has a link to the server, and a thread on which its followers compute. What a link answers is decided by
state machines without I/O (`protocol`, `session`, `liveness`); `link` moves the bytes and reads the clock.

Doors: `link`, `serve`.
"""
