"""`python -m seedbus`, and `seedbus`, is the command. Ctrl-C ends it without a traceback, even while it loads."""

import sys


def main() -> None:
    """The entry point of the command."""
    try:
        from seedbus.scenarios.cli import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("seedbus: stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
