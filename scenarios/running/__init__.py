"""Running a scenario: prepare, execute, report; also its worker processes, and the replay of its journal.

Doors: `limits`, `replay`, `run`, `worker`.
"""
