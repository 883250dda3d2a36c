"""What everything that a scenario can name has to keep: one file a kind, run on plug-ins and by the tests of our own.

Doors: `check`.
"""
