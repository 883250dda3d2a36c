"""What federated methods add to local first-order training and averaging: one paper a file.

Doors: `method`.
"""
