"""The client side: a process's clients with their replicas and their own state, and the evaluator.

Doors: `client_spec`, `client_state`, `forging`, `relabelling`, `tampering`, `worker`.
"""
