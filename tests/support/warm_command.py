"""`seedbus` without the seconds that its imports take: a process that has done them forks for each command.

    with WarmCommand() as folder: ...    a program `seedbus` lies in the folder, to be first in PATH

`seedbus -c CODE` is `python -c CODE`, and `seedbus -m MODULE` is `python -m MODULE`. The program passes its arguments,
folder, environment and standard streams on, waits, and ends with the exit code. What it runs is in another process
group, so it is not for commands that are sent signals, or that stay in the background. It ends with the program, if
that is killed.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NoReturn

from seedbus.__main__ import main

PROGRAM = """#!{python} -ISB
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({socket!r})
    facts = [sys.argv[1:], os.getcwd(), dict(os.environ)]
    socket.send_fds(server, [json.dumps(facts).encode() + b"\\n"], [0, 1, 2])
    code = server.recv(1)
sys.exit(code[0] if code else 70)
"""
LONGEST = 1 << 20
"""Bytes of a command with its environment, at most."""


class WarmCommand(AbstractContextManager[Path]):
    """Starts the process, and ends it."""

    def __enter__(self) -> Path:
        self._room = TemporaryDirectory(prefix="seedbus-")
        folder = Path(self._room.name)
        path = folder / "seedbus"
        path.write_text(PROGRAM.format(python=sys.executable, socket=str(folder / "socket")), encoding="utf-8")
        path.chmod(0o755)
        command = [sys.executable, "-P", __file__, str(folder / "socket")]  # no folder of tests in sys.path
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it listens
        return folder

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._room.cleanup()


@cache
def warm() -> Path:
    """Return the folder of a `seedbus` that starts fast, until this process ends."""
    command = WarmCommand()
    atexit.register(command.__exit__, None, None, None)
    return command.__enter__()


def _imports() -> None:
    """Import what commands import, and start no thread."""
    import pandas  # noqa: F401

    import seedbus.algorithms.directions.numba_backend
    import seedbus.cli.main
    import seedbus.models.images.problem
    import seedbus.scenarios.reporting.results
    import seedbus.scenarios.running.run
    import seedbus.studies.study.study  # noqa: F401


def _received(connection: socket.socket) -> tuple[list[Any], list[int]]:
    """Return a command's arguments, folder and environment, and its standard streams."""
    data, streams, *_ = socket.recv_fds(connection, LONGEST, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(LONGEST)
    return json.loads(data), streams


def _run(facts: list[Any], streams: list[int]) -> NoReturn:
    """Run a command, and end this process as Python does, without taking all modules apart."""
    arguments, folder, environment = facts
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, code = ["seedbus", *arguments], 0
    try:
        if arguments[:1] == ["-c"]:
            sys.path.insert(0, "")
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        elif arguments[:1] == ["-m"]:
            del sys.argv[:2]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve(path: str) -> None:
    """Fork for each command, twice: one process waits for the other, and tells its exit code."""
    _imports()
    gc.freeze()  # else a collection in each process would copy all pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print(flush=True)
        while server in select.select([server, sys.stdin], [], [])[0]:  # until who started this process has ended
            connection, _ = server.accept()
            if os.fork():
                connection.close()
                continue
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            facts, streams = _received(connection)
            if not (command := os.fork()):
                connection.close()
                _run(facts, streams)
            asking = connection.fileno()
            if asking in select.select([asking, os.pidfd_open(command)], [], [])[0]:
                os.kill(command, signal.SIGKILL)  # the program is gone: it says nothing more before it has an answer
                os._exit(0)
            connection.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]) & 0xFF]))
            os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
