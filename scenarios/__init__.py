"""Scenario files, faults, runs, studies, reports and the command line.

Doors: `analysis`, `cli`, `reporting`, `running`, `schema`, `study`.
"""
