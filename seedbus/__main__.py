"""`python -m seedbus`, and `seedbus`, is the command. Ctrl-C ends it without a traceback, even while it loads; so do
SIGTERM, by which batch systems and containers end what runs, and SIGHUP, which a terminal sends when it closes."""

import _thread
import logging
import os
import select
import signal
import sys
from typing import Any

_stopped_by: int = signal.SIGINT  # or that of the others that came last; the exit code says which, as a shell's does


def main() -> None:
    """The entry point of the command."""
    _open_closed_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # what started this process may keep it from them, as nohup
            signal.signal(number, _interrupt)
    sys.unraisablehook = _stop_again
    logging.raiseExceptions = False  # a library whose log cannot be written, as on a full disk, prints no traceback
    try:
        from seedbus.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("seedbus: stopped\n")
        sys.exit(128 + _stopped_by)
    except SystemExit as end:
        if end.code == 128 + signal.SIGINT:
            end.code = 128 + _stopped_by
        raise


def _open_closed_streams() -> None:
    """Open the standard streams that are closed, as by `>&-`, for nothing. Otherwise the next files would get their
    numbers, and with them what libraries print."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # gets the lowest number that is free: the stream's
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _interrupt(number: int, frame: Any) -> None:
    """What Ctrl-C does, even where that is ignored, as it is in the background of a shell's script."""
    global _stopped_by
    _stopped_by = number
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if not callable(on_ctrl_c):
        raise KeyboardInterrupt
    on_ctrl_c(number, frame)


def _stop_again(ignored: Any) -> None:
    """Stop in a moment if Ctrl-C or such a signal came during a finalizer or a callback of the interpreter, where
    Python only prints an exception and goes on. Imports have many of these."""
    if ignored.exc_type is KeyboardInterrupt:
        _thread.start_new_thread(_interrupt_soon, (_thread.get_ident(),))
    else:
        sys.__unraisablehook__(ignored)


def _interrupt_soon(thread: int) -> None:
    select.select([], [], [], 0.01)  # seconds: the finalizer is over by then; else this comes again
    signal.pthread_kill(thread, _stopped_by)  # the others may be ignored


if __name__ == "__main__":
    main()
