"""Trackers: services and file formats for experiments that are told of a run as it goes on. One file each.

Doors: `tracker`.
"""
