"""Whom a round asks: one policy a file, shared by every algorithm.

A policy chooses `count` of the members by draws keyed by (seed, round): the choice depends on who is a member, on what
is known of them and on nothing else. It may look at `count` times a constant of them, so that a round costs no more
with more clients.

Doors: `known`, `power_of_choice`, `rarest`, `uniform`.
"""
