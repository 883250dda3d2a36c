"""Run a scenario: prepare, execute and report it; also host its clients in processes, and replay its journal.

Doors: `limits`, `memory_hints`, `own_data`, `possible`, `predict`, `prepare`, `prune`, `recording`, `replay`,
`results`, `run`, `seed_secret`, `verify`, `verify_own`, `worker`.
"""
