"""Who acts: coordinator, server, host of clients, evaluator, journal."""
