"""Federated methods: what they change in local training and in averaging; one paper a file.

Doors: `method`.
"""
