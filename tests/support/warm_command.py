"""`seedbus` without the seconds that its imports take: a process that has done them forks for each command.

    with WarmCommand() as folder: ...    a program `seedbus` lies in the folder, to be first in PATH

`seedbus -c CODE` is `python -c CODE`, `seedbus -m MODULE` is `python -m MODULE`, and `seedbus FILE.py` is `python
FILE.py`. A sitecustomize.py in the first folder of PYTHONPATH is run, too. The program passes its arguments,
folder, environment and standard streams on, waits, and ends with the exit code or by the signal. What it runs, which is
`command_of` the program, is the leader of another session: signals to a process group reach the program alone. It ends
with the program, if that is killed.
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
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn

from seedbus.__main__ import main
from seedbus.scenarios.launchers import local
from seedbus.studies.study import pool

PROGRAM = """#!{python} -ISB
import json, os, signal, socket, sys
passed_on = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # until it is known to whom
with socket.socket(socket.AF_UNIX) as server:
    server.connect({socket!r})
    facts = [sys.argv[1:], os.getcwd(), dict(os.environ)]
    socket.send_fds(server, [json.dumps(facts).encode() + b"\\n"], [0, 1, 2])
    answers = server.makefile()
    command = int(answers.readline() or sys.exit(70))
    for number in passed_on:
        signal.signal(number, lambda number, frame: os.kill(command, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    code = int(answers.readline() or 70)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
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


def command_of(pid: int) -> int:
    """Return the pid of what a program runs; of another process, or if nothing runs yet, its own."""
    if warm.cache_info().currsize:
        with suppress(OSError):
            return int(os.readlink(warm() / str(pid)))
    return pid


def _prepare() -> None:
    """Import what commands import, load the kernels and make the schema of scenarios; start no thread."""
    import pandas  # noqa: F401

    import seedbus.cli.main
    import seedbus.models.images.problem
    import seedbus.scenarios.reporting.results
    import seedbus.scenarios.running.run
    import seedbus.scenarios.running.worker
    import seedbus.studies.study.study  # noqa: F401
    from seedbus.algorithms.directions.warm import use
    from seedbus.scenarios.schema.loading import load

    use()
    load("quickstart")


def _received(connection: socket.socket) -> tuple[list[Any], list[int]]:
    """Return a command's arguments, folder and environment, and its standard streams."""
    data, streams, *_ = socket.recv_fds(connection, LONGEST, 3)
    while not data.endswith(b"\n"):
        if not (more := connection.recv(LONGEST)):
            os._exit(0)  # the program was killed before it had asked for anything
        data += more
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
    tempfile.tempdir = None  # the environment says where
    sys.argv, code = ["seedbus", *arguments], 0
    try:
        own = Path(environment.get("PYTHONPATH", "").partition(os.pathsep)[0], "sitecustomize.py")
        if "PYTHONPATH" in environment and own.is_file():
            runpy.run_path(str(own))
        if arguments[:1] == ["-c"]:
            sys.path.insert(0, "")
            sys.argv = arguments[:1] + arguments[2:]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        elif arguments[:1] == ["-m"]:
            del sys.argv[:2]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments and arguments[0].endswith(".py"):
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
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
    _prepare()
    program = str(Path(path).with_name("seedbus"))
    local.COMMAND[:] = [program, "client", "--parent-pipe"]  # a command's workers are forks, too
    vars(pool)["sys"] = SimpleNamespace(executable=program)  # and those of its studies
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
            asked_by, *_ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            link = Path(path).with_name(str(asked_by))
            if not (command := os.fork()):
                connection.close()
                os.setsid()
                link.symlink_to(str(os.getpid()))  # at once, unlike a file that is written
                _run(facts, streams)
            connection.sendall(b"%d\n" % command)
            asking = connection.fileno()
            if asking in select.select([asking, os.pidfd_open(command)], [], [])[0]:
                os.kill(command, signal.SIGKILL)  # the program is gone: it says nothing more before it has an answer
            code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
            link.unlink(missing_ok=True)
            with suppress(OSError):
                connection.sendall(b"%d\n" % code)
            os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
