"""The parties of a run: the server with its coordinator and journal, the clients and the evaluator.

Doors: `availability`, `catch_up`, `client`, `errors`, `extensions`, `feature`, `gossip`, `journal`, `launcher`,
`measuring`, `messages`, `monitor`, `observer`, `policies`, `privacy`, `problem`, `refusals`, `round_record`, `secure`,
`seeds`, `server`, `sight`, `stop_request`.
"""
