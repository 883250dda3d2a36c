"""The server: the coordinator decides without awaits, the server carries it out.

Doors: `collusion`, `coordinator`, `member_index`, `outages`, `played`, `round`, `run_spec`, `server`,
`state`, `stopping`.
"""
