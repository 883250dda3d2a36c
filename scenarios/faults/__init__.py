"""Faults: what a scenario does to messages. One file each; a new file here is a new fault.

Doors: `byzantine`, `hostile`, `selector`.
"""
