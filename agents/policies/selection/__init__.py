"""Which clients a round asks: one policy a file, shared by every algorithm.

A policy chooses `count` of the members with draws keyed by (seed, round). The choice depends on the members and on what
is known of them, and on nothing else. A policy looks at no more than a constant times `count` members, so that a round
costs no more with more clients.

Doors: `known`, `selection`, `uniform`.
"""
