"""The user's code in a task: functions by name, networks that they return, and metrics that they are.

Doors: `metric_settings`, `named`, `network`, `own_metrics`, `own_network`, `repeated`.
"""
