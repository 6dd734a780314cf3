"""The OCI runtime of an agent: the first of runc and crun that can start a container here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.agent.isolation.container_bundle import INIT, Contents, command, configuration
from croupier.agent.isolation.image_tools import find_tool
from croupier.agent.shim.build import provide
from croupier.agent.shim.compiling import STATIC
from croupier.model.errors import Unavailable

NAMES: Final = ("runc", "crun")
PROBE_S: Final = 10.0
_SOURCE: Final = Path(__file__).with_name("container.c")
_VERSION: Final = b"croupier-container 1\n"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime that works.

    Attributes:
        words: the program and the options before its command.
        program: `container.c`, compiled.
    """

    words: tuple[str, ...]
    program: Path


def build_program(directory: Path) -> Path:
    """Return the compiled `container.c`; blocks while it compiles, 20 s at most.

    Raises:
        Unavailable: if it cannot be compiled.
    """
    # Containers of tasks use older ones until they end. It also runs inside images, which have no
    # libraries of this machine.
    try:
        return provide(directory, _SOURCE, _VERSION, (STATIC,))
    except Unavailable as error:
        text = f"no container can be started without a static C program: {error}"
        raise Unavailable(text) from error


def find_runtime(directory: Path, given: str = "") -> Runtime:
    """Return the runtime `given`, or the first that starts a container. Blocks, 50 s at most.

    Args:
        directory: for the compiled program and for trials, below the work dir.
        given: a path or a name; empty: look for `NAMES`.

    Raises:
        Unavailable: if there is none, with the reason of each.
    """
    names = (given,) if given else NAMES
    found = {name: path for name in names if (path := find_tool(name))}
    reasons = [f"{name} is not installed" for name in names if name not in found]
    if not found:
        raise Unavailable("; ".join(reasons))
    program = build_program(directory)
    for path in found.values():
        runtime = Runtime((path, *_options(path)), program)
        why = _try(runtime, directory)
        if not why:
            return runtime
        reasons.append(f"{path}: {why}")
    raise Unavailable("; ".join(reasons))


def _options(path: str) -> tuple[str, ...]:
    """Return the options by which a runtime leaves control groups alone."""
    if "crun" in Path(path).name:
        return ("--cgroup-manager=disabled",)
    # As root it would insist on groups of its own, which are read-only where it runs.
    return ("--rootless=true",) if os.geteuid() == 0 else ()


def _try(runtime: Runtime, directory: Path) -> str:
    """Start a container that prints the version of its program; return an error, or nothing."""
    with tempfile.TemporaryDirectory(prefix="trial-", dir=directory) as scratch:
        place = Path(scratch).resolve()
        (place / "mount").mkdir()
        root = place / "empty"
        root.mkdir()
        contents = Contents(place, runtime.program, (INIT,), has_network=False)
        (place / "config.json").write_text(json.dumps(configuration(contents)))
        process = subprocess.Popen(
            command(runtime.words, contents, root, place.name),
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=PROBE_S)
        except subprocess.TimeoutExpired:
            # It leads its group, and is not reaped yet. The container ends with its runtime.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"no container starts within {PROBE_S:g} s"
    if output == _VERSION and not process.returncode:
        return ""
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else f"it ends with code {process.returncode}"
