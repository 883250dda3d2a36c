"""Errors that a person can mend, as one sentence on stderr and an exit code; a traceback is always a bug of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from seedbus.scenarios.errors import Exit, ScenarioError, WorkerFailed
from seedbus.scenarios.reporting.terminal import say


@contextmanager
def cli_errors() -> Iterator[None]:
    """What a person can mend, as one sentence and an exit code."""
    try:
        yield
    except KeyboardInterrupt as stop:
        _fail(str(stop) or "stopped", Exit.INTERRUPTED)
    except BrokenPipeError:
        raise  # `| head`: typer ends quietly
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try again, and complain, when it ends
        _fail(f"{error.filename or 'stdout'}: it cannot be written ({error.strerror})", Exit.FOLDER)
    except MemoryError as error:
        _fail(f"there is not enough memory for this run ({error})", Exit.DATA)
    except Exception as error:
        if _is_stop(error):
            _fail("stopped", Exit.INTERRUPTED)
        known = exit_code(error)
        if known is None:
            raise
        _fail(error.sentences if isinstance(error, ScenarioError) else str(error), known)


def _is_stop(error: BaseException | None) -> bool:
    """Whether it is Ctrl-C that came while something was loaded, and was taken for an error there."""
    while error is not None:
        # pydantic's core, interrupted while it builds, swallows that and raises an error of its own
        is_swallowed = type(error).__name__ == "SchemaError" and "KeyboardInterrupt" in str(error)
        if isinstance(error, KeyboardInterrupt) or is_swallowed:
            return True
        error = error.__cause__ or error.__context__
    return False


def exit_code(error: Exception) -> Exit | None:
    """The exit code of an error whose sentence a person can act upon; None: it is a bug of ours."""
    from seedbus.agents.errors import AgentError, JoinRefused, Unfinishable
    from seedbus.bus.errors import BadEndpoint, BadKey, EndOfTime, LedgerDamaged, RemoteError, TooFewFiles
    from seedbus.models.errors import DataError, NotAllowed

    if isinstance(error, WorkerFailed):  # with a sentence of its own, unless it was killed
        return Exit(error.code) if error.code in list(Exit) else Exit.STUCK
    kinds: list[tuple[type[Exception], Exit]] = [
        (DataError, Exit.DATA),
        (NotAllowed, Exit.LIMITS),
        (ScenarioError, Exit.USAGE),
        (Unfinishable, Exit.STUCK),
        (EndOfTime, Exit.STUCK),
        (JoinRefused, Exit.PEER),
        (RemoteError, Exit.PEER),
        (BadEndpoint, Exit.USAGE),
        (BadKey, Exit.USAGE),
        (TooFewFiles, Exit.PEER),
        (AgentError, Exit.FOLDER),
        (LedgerDamaged, Exit.FOLDER),
    ]
    return next((code for kind, code in kinds if isinstance(error, kind)), None)


def _fail(sentence: str | list[str], code: Exit) -> None:
    sentences = [sentence] if isinstance(sentence, str) else sentence
    for number, each in enumerate(sentences):
        say(each if number else f"seedbus: {each}", to_stderr=True)
    raise typer.Exit(code)
