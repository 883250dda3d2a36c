"""The tasks: one file for each name of a scenario's `task:`.

Importing a task needs neither torch nor data; `bind` loads both.

Doors: `torch_task`.
"""
