"""Scenario files, faults, runs, studies, reports and the command line.

Doors: `cli`, `reporting`, `running`, `schema`, `study`.
"""
