"""A process of clients: its replicas, its clients' state, and the evaluator."""
