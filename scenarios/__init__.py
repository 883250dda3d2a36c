"""Scenario files, faults, runs and their reports.

Doors: `cli_errors`, `consent`, `errors`, `exporting`, `extras`, `faults`, `launchers`, `operations`, `reporting`,
`run_folder`, `running`, `schema`, `sentences`, `tracking`, `transports`.
"""
