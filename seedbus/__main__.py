"""`python -m seedbus` is the command."""

from seedbus.scenarios.cli import main

main()
