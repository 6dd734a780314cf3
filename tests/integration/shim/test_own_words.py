"""Processes that tell more of their arguments and variables than they have."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from croupier.agent.exec import task_execs
from croupier.agent.shim.orphans import MOST_BYTES, RunMarks, read_own_words, sweep

TOLD = 1 << 28
# Says that an empty part of its memory is its variables and arguments, which needs no right.
PROGRAM = f"""
import ctypes, mmap, struct, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
at = libc.mmap(None, {TOLD}, mmap.PROT_READ, flags, -1, 0)
own = id(sys) & ~4095
borders = [own, own + 4096, *[own] * 5, *[at, at + {TOLD}] * 2]
told = struct.pack("12QIi", *borders, 0, 0, -1)
print(libc.prctl(35, 14, told, len(told), 0), flush=True)
sys.stdin.read()
"""


@contextmanager
def boaster() -> Iterator[int]:
    """Start the program; yield its pid."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answer = process.stdout.readline()
        try:
            if answer != b"0\n":
                pytest.skip("this kernel lets no process change that")
            yield process.pid
        finally:
            process.stdin.close()


def test_no_process_makes_the_agent_read_all_of_its_memory() -> None:
    with boaster() as pid:
        for name in ("environ", "cmdline"):
            assert len(read_own_words(f"/proc/{pid}/{name}")) == MOST_BYTES
        tracemalloc.start()
        try:
            assert task_execs._variables(pid, ["PASSWORD"]) == {}
            sweep(RunMarks([f"/no/such/run/{os.getpid()}"]))
            assert tracemalloc.get_traced_memory()[1] < 32 * MOST_BYTES
        finally:
            tracemalloc.stop()
