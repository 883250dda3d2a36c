"""Errors that the user can fix are printed to stderr as one sentence. A traceback is always a bug of ours."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from seedbus.scenarios.errors import Differs, Exit, ScenarioError, WorkerFailed
from seedbus.scenarios.extras import lacks
from seedbus.scenarios.reporting.terminal import say, shown


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn errors that the user can fix into one sentence on stderr and an exit code; pass all others on.

    Raises:
        typer.Exit: with the code of `exit_code`.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        _fail(str(stop) or "stopped", Exit.INTERRUPTED)
    except BrokenPipeError:
        raise  # the reader of a pipe is gone, as with `| head`: typer exits without a message
    except OSError as error:
        _fail_in_plugin(error)
        if error.errno is None:  # of an import, such as llvmlite's
            _fail(f"a library cannot be loaded ({error})", Exit.DATA)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise Python flushes stdout at exit, and fails again
        _fail(f"{error.filename or 'stdout'}: it cannot be written ({error.strerror})", Exit.FOLDER)
    except SystemExit as error:
        _fail_in_plugin(error)
        raise
    except Exception as error:
        from seedbus.models.errors import DataError, is_out_of_memory

        if is_out_of_memory(error) and not isinstance(error, DataError):
            _fail(f"there is not enough memory for this run ({error})", Exit.DATA)
        if _is_stop(error):
            _fail("stopped", Exit.INTERRUPTED)
        code = exit_code(error)
        if code is None:
            _fail_in_plugin(error)
            if isinstance(error, ModuleNotFoundError) and error.name and (sentence := lacks(error.name)):
                _fail(sentence, Exit.USAGE)
            note = _what_to_check()
            if note:
                error.add_note(note)
            raise
        _fail(error.sentences if isinstance(error, ScenarioError) else str(error), code)


def _fail_in_plugin(error: BaseException) -> None:
    """Fail with a sentence if a line of a plug-in has raised an error."""
    plugins = sys.modules.get("seedbus.scenarios.schema.plugins")  # none is loaded without it
    line = None if plugins is None else plugins.plugin_line(error)
    if line is not None:
        _fail(line, Exit.BROKEN)


def _what_to_check() -> str:
    """Return which plug-ins may have caused an error that none of their lines raised; "" without plug-ins."""
    from seedbus.discovery import PLUGINS

    if not PLUGINS:
        return ""
    files = [f"`seedbus check-plugin {shlex.quote(plugin.path)}`" for plugin in PLUGINS.values() if plugin.path]
    how = " and ".join(files) or "`seedbus check-plugin FILE.py`"
    return shown(
        f"with plug-ins ({', '.join(sorted(PLUGINS))}): {how} may find what they return that Seedbus cannot use"
    )


def _is_stop(error: BaseException | None) -> bool:
    """Whether the error was caused by Ctrl-C during an import, which code there turned into another error."""
    while error is not None:
        # pydantic's core swallows a Ctrl-C while it builds a schema, and raises an error of its own
        is_swallowed = type(error).__name__ == "SchemaError" and "KeyboardInterrupt" in str(error)
        if isinstance(error, KeyboardInterrupt) or is_swallowed:
            return True
        error = error.__cause__ or error.__context__
    return False


def exit_code(error: BaseException) -> Exit | None:
    """Return the exit code of an error that the user can fix; None for any other error, which is a bug of ours."""
    from seedbus.agents.errors import AgentError, JoinRefused, Unfinishable
    from seedbus.algorithms.directions.look_ups import UnknownLookUps
    from seedbus.bus.errors import BadEndpoint, BadKey, EndOfTime, LedgerDamaged, RemoteError, TooFewFiles, Unusable
    from seedbus.discovery import PLUGINS, PluginError
    from seedbus.models.errors import DataError, NotAllowed

    if isinstance(error, WorkerFailed):  # unless it was killed, the worker has printed a sentence of its own
        return Exit(error.code) if error.code in list(Exit) else Exit.STUCK
    kinds: list[tuple[type[Exception], Exit]] = [
        (DataError, Exit.DATA),
        (NotAllowed, Exit.LIMITS),
        (ScenarioError, Exit.USAGE),
        (Differs, Exit.DIFFERS),
        (UnknownLookUps, Exit.USAGE),
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
    if PLUGINS:  # otherwise a class of ours has returned what it may not
        kinds += [(PluginError, Exit.BROKEN), (Unusable, Exit.BROKEN)]
    return next((code for kind, code in kinds if isinstance(error, kind)), None)


def _fail(sentence: str | list[str], code: Exit) -> None:
    sentences = [sentence] if isinstance(sentence, str) else sentence
    try:
        for number, each in enumerate(sentences):
            say(each if number else f"seedbus: {each}", to_stderr=True)
    except OSError:  # stderr cannot be written either; the exit code says it all the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    raise typer.Exit(code)
