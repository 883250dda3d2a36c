"""`python -m seedbus`, and `seedbus`, is the command. Ctrl-C ends it without a traceback, even while it loads; so does
SIGTERM, by which batch systems and containers end what runs."""

import signal
import sys
from typing import Any


def main() -> None:
    """The entry point of the command."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:  # what started this process may keep it from SIGTERM
        signal.signal(signal.SIGTERM, _interrupt)
    try:
        from seedbus.scenarios.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("seedbus: stopped\n")
        sys.exit(130)


def _interrupt(number: int, frame: Any) -> None:
    """What Ctrl-C does, even where that is ignored, as it is in the background of a shell's script."""
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if not callable(on_ctrl_c):
        raise KeyboardInterrupt
    on_ctrl_c(number, frame)


if __name__ == "__main__":
    main()
