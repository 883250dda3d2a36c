"""A process of clients: its replicas, its clients' state, and the evaluator.

Doors: `client_state`, `downloads`, `forging`, `tampering`, `worker`.
"""
