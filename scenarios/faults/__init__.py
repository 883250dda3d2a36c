"""Faults: what a scenario does to messages, links, clients and the server. One file each; a new file is a new fault.

Doors: `base`, `byzantine`, `crash`, `hostile`, `link_trace`, `server_crash`, `trace_file`.
"""
