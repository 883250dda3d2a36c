"""How a run's server and its clients reach each other: one class and one entry of `TRANSPORTS` for each transport.

Doors: `contract`, `placement`, `transports`.
"""
