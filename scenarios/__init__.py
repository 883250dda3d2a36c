"""Scenario files, faults, runs, reports and the command line.

Doors: `cli`, `reporting`, `running`, `schema`.
"""
