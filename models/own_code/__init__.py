"""The user's code in a task: functions by name, and networks that they return.

Doors: `named`, `network`, `own_network`.
"""
