"""Who acts: coordinator, server, host of clients, evaluator, journal.

Doors: `availability`, `chunks`, `client`, `errors`, `journal`, `launcher`, `messages`, `observer`, `policies`,
`refusals`, `round_record`, `server`.
"""
