"""A worker keeps the memory that its clients' steps free, so that the system need not clear it page by page again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys, threading
import numpy as np
from seedbus.bus.errors import ServerGone
from seedbus.bus.zeromq import Joining
from seedbus.scenarios.running.worker import serve

if sys.argv[1] == "serve":
    try:
        serve(Joining("tcp://127.0.0.1:1", patience_s=0.1), memory=None, parent_pipe=False, limits=None)
    except ServerGone:
        pass

def step():
    blocks = [np.ones(100_000, np.float32) for _ in range(40)]

def work():
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's settings")
def test_a_worker_keeps_what_its_steps_free() -> None:
    """Faults of pages over twenty steps of 16 MB, in the thread that works; each step takes 3,900 pages."""
    every, own = (
        int(subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=True).stdout)
        for how in ("plain", "serve")
    )
    assert own < 2_000 < every
