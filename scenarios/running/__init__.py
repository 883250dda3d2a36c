"""Running a scenario: its folder, its processes, and its replay.

Doors: `access`, `cluster`, `limits`, `replay`, `run`, `worker`.
"""
