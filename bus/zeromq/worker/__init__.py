"""The worker's end of the ZeroMQ transport.

A link to the server for every process, and the thread on which its followers compute.

Doors: `serve`.
"""
