"""Which clients a round asks: one policy a file, shared by every algorithm.

A policy chooses `count` of the members with draws keyed by (seed, round). The choice depends on the members and on what
is known of them, and on nothing else. All but `oort`, which ranks all members, look at no more than a constant times
`count` of them, so that a round costs no more with more clients.

Doors: `known`, `selection`, `uniform`.
"""
