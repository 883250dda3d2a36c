"""Connect a run's server with its clients; each transport is one class and one entry of `TRANSPORTS`.

Doors: `contract`, `placement`, `transports`.
"""
