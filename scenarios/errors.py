"""Errors that the user can fix, and the exit codes of the command."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import zip_longest
from pathlib import Path, PurePath


class Exit(IntEnum):
    """The command's exit codes; `docs/reference.md` lists them."""

    OK = 0
    BUG = 1
    USAGE = 2
    DATA = 3
    FOLDER = 4
    DIVERGED = 5
    STUCK = 6
    PEER = 7
    MISSED = 8
    LIMITS = 9
    INCOMPLETE = 10
    BROKEN = 11
    TRAINING_DIVERGED = 12
    NO_COMMIT = 13
    DIFFERS = 14
    INTERRUPTED = 130


def setting_label(setting: str) -> str:
    """Return how messages name a setting `field=value` of the command line, cut off if it is long."""
    from seedbus.bus.text import printable  # with the bus comes NumPy, which --help needs not load

    return printable(f"--set {setting}")


def with_type(error: BaseException) -> str:
    """Return what an error of somebody else's code says, after its type."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class Differs(Exception):
    """A rehearsal is not as the run that it is of; the sentence says where."""


class WorkerFailed(Exception):
    """A worker process ended and was not replaced.

    Attributes:
        number: the worker's number.
        code: its exit code, or minus the number of the signal that killed it.
        why: what is known of the reason; "": nothing more.
    """

    def __init__(self, number: int, code: int, why: str = "") -> None:
        self.number = number
        self.code = code
        self.why = why
        super().__init__(number, code, why)

    def __str__(self) -> str:
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"worker {self.number} {how}{f' ({self.why})' if self.why else ''}; every closed round is kept"


class ScenarioError(ValueError):
    """A scenario cannot be run, or an option is wrong.

    Attributes:
        source: the file or option.
        problems: one sentence for each problem, with the field and what is accepted.
        settings: for each problem, the `--set` settings that make it; may be left out.
    """

    def __init__(self, source: str, problems: list[str], settings: Sequence[Sequence[str]] = ()) -> None:
        self.source = source
        self.problems = problems
        self.settings = settings
        super().__init__(source, problems, settings)

    @property
    def sentences(self) -> list[str]:
        return [
            f"{self.source}{''.join(f' {setting_label(setting)}' for setting in settings)}: {problem}"
            for problem, settings in zip_longest(self.problems, self.settings, fillvalue=())
        ]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a run. All its closed rounds are stored in its folder.

    Attributes:
        folder: the run's folder.
        go_on: with what the run goes on, in words.
    """

    def __init__(self, folder: Path, go_on: str) -> None:
        self.folder = folder
        self.go_on = go_on
        super().__init__(folder, go_on)

    def __str__(self) -> str:
        return f"stopped; every closed round is kept: go on with {self.go_on}"


def path_of(given: object, name: str, expected: str) -> Path:
    """Return a file or folder that a call in Python names.

    Args:
        given: the argument.
        name: the argument's name, for the sentence.
        expected: what is accepted.

    Raises:
        ScenarioError: it is neither text nor a path, or has a NUL, which no file has.
    """
    if isinstance(given, str | PurePath) and "\0" not in str(given):
        return Path(given)
    raise not_accepted(given, name, expected)


def check_methods(given: object, protocol: type, name: str) -> None:
    """Check an object that a call in Python is given, such as an observer.

    Args:
        given: the argument.
        protocol: the class whose methods it must have.
        name: the argument's name, for the sentence.

    Raises:
        ScenarioError: a method is missing, or it is a class and no object.
    """
    names = [each for each, method in vars(protocol).items() if callable(method) and not each.startswith("_")]
    if isinstance(given, type) or not all(callable(getattr(given, each, None)) for each in names):
        raise not_accepted(given, name, f"an object with the methods {', '.join(names)}")


def not_accepted(given: object, name: str, expected: str) -> ScenarioError:
    """Return the error that says which argument of a call in Python is not accepted, and what would be."""
    from seedbus.bus.text import printable

    return ScenarioError(name, [f"{printable(repr(given))} is not accepted; expected {expected}"])
