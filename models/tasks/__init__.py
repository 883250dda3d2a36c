"""The tasks: one name of a scenario's `task:` a file.

Importing a task needs neither torch nor data; `bind` loads both.

Doors: .
"""
