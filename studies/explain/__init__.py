"""Before a run: what a scenario will do, what it will cost, and a first scenario from a few choices.

Doors: `explain`, `first_scenario`, `forecast`, `noise`, `rehearsal`.
"""
