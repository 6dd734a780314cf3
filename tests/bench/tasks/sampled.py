"""Runs a module under a sampling profiler of its threads' CPU.

    python -m tests.bench.tasks.sampled DIR MODULE [ARGUMENT...]

SIGUSR2 starts it, and a second one writes DIR/PID.json: seconds of CPU by the group and by the
function of our own code that was running, of threads without Python ("threads of libraries"), and
in all. A sample counts the CPU that each thread has used since the last one.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

EVERY_S = 0.002
LIBRARIES = {
    "asyncio": "asyncio, with C parts of gRPC", "selectors.py": "epoll", "grpc": "gRPC's Python",
    "structlog": "log", "prometheus_client": "metrics", "aiohttp": "http",
    "concurrent": "thread pools", "threading.py": "thread pools", "queue.py": "thread pools",
}  # fmt: skip


class Sampler:
    """Attributes the CPU of threads to what they run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_on = False
        self._cpu: dict[int, float] = {}
        self._whole = 0.0
        self._groups: dict[str, float] = defaultdict(float)
        self._functions: dict[str, float] = defaultdict(float)

    def toggle(self, *_: object) -> None:
        """Start, or write the result."""
        if not self._is_on:
            self._look(None)
            self._groups.clear()
            self._functions.clear()
            self._is_on = True
            signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
            return
        self._is_on = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        result = {"groups": self._groups, "functions": self._functions}
        path = self._directory / f"{os.getpid()}.json"
        path.with_suffix(".new").write_text(json.dumps(result))
        path.with_suffix(".new").rename(path)

    def sample(self, _: int, frame: FrameType | None) -> None:
        """Take one sample; `frame` is that of this thread."""
        self._look(frame)

    def _look(self, frame: FrameType | None) -> None:
        frames = sys._current_frames()
        if frame is not None:
            frames[threading.get_ident()] = frame
        whole = time.process_time()
        rest = whole - self._whole
        self._whole = whole
        for ident, each in frames.items():
            cpu = time.clock_gettime(time.pthread_getcpuclockid(ident))
            used = cpu - self._cpu.get(ident, 0.0)
            self._cpu[ident] = cpu
            rest -= used
            if used > 0:
                group, function = _where(each)
                self._groups[group] += used
                self._functions[function] += used
        self._groups["threads of libraries"] += max(0.0, rest)


def _where(innermost: FrameType) -> tuple[str, str]:
    """Return the group and the function of the innermost frame that is known."""
    frame: FrameType | None = innermost
    while frame is not None:
        path = frame.f_code.co_filename
        _, ours, within = path.rpartition("/croupier/")
        name = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
        if ours:
            return within.rpartition("/")[0], f"{within}:{name}"
        parts = path.split("/")
        for library, group in LIBRARIES.items():
            if library in parts:
                return group, f"{library}/{parts[-1]}:{name}"
        frame = frame.f_back
    return "other", f"{innermost.f_code.co_filename}:{innermost.f_code.co_name}"


def main(directory: str, module: str, *words: str) -> None:
    sampler = Sampler(Path(directory))
    signal.signal(signal.SIGUSR2, sampler.toggle)
    signal.signal(signal.SIGPROF, sampler.sample)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
