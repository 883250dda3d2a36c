"""Who sees what of a client: the names of both, in which each part of a scenario tells what it changes."""

from __future__ import annotations

from enum import StrEnum


class Viewer(StrEnum):
    """Who may see something."""

    SERVER = "the server"
    CLIENT = "another client"
    EVALUATOR = "the evaluator"
    READER = "who has the journal"
    STRANGER = "a stranger, with keys"


class Matter(StrEnum):
    """What may be seen."""

    SAMPLES = "samples"
    REPORTS = "single reports"
    COMMITS = "commits"
    GRADIENTS = "gradients"
    PRESENCE = "who reports"
    COUNTS = "numbers of samples"
    LOSSES = "losses"
    MODEL = "the model"


NEVER = "never"

Sight = dict[Viewer, dict[Matter, str]]
"""Viewer → matter → what is seen of it, in a few words."""
