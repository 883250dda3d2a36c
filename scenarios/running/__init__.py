"""Run a scenario: prepare, execute and report it; also host its clients in processes, and replay its journal.

Doors: `limits`, `recording`, `replay`, `run`, `worker`.
"""
