"""The user's own network and data: samples of any data set, and the problem that they make.

Doors: `problem`, `settings`.
"""
