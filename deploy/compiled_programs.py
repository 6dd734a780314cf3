"""The step of hatchling that compiles the agent's C programs for a wheel.

A wheel with them is for machines of one architecture, and its agents need no compiler. Without a
compiler, the wheel is for all machines, and their agents compile the programs when they start. So
does an editable installation.
"""

from __future__ import annotations

import platform
import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_AGENT = "croupier/agent"
# By path in the package, without suffix.
_VERSIONS = {"shim/shim": b"croupier-shim 2\n", "isolation/container": b"croupier-container 1\n"}
# A static program needs no C library.
_PLATFORMS = ("manylinux_2_17", "musllinux_1_1")


class CompiledPrograms(BuildHookInterface[Any]):
    """Adds `shim/shim` and `isolation/container` to the wheel."""

    PLUGIN_NAME = "custom"
    _made = Path("/nonexistent")

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the programs, statically, unless the installation is editable."""
        if version == "editable":
            return
        sources = Path(self.root) / "agent" / _AGENT
        compiling = runpy.run_path(str(sources / "shim" / "compiling.py"))
        made = self._made = Path(tempfile.mkdtemp(prefix="croupier-wheel-"))
        for name, told in _VERSIONS.items():
            program = made / Path(name).name
            source = sources / f"{name}.c"
            why = compiling["compile_program"](program, source, told, (compiling["STATIC"],))
            if why:
                self.app.display_warning(f"agents will need a C compiler for {source.name}: {why}")
                continue
            build_data["force_include"][str(program)] = f"{_AGENT}/{name}"
            build_data["pure_python"] = False
        if build_data["pure_python"]:
            return
        platforms = ".".join(f"{each}_{platform.machine()}" for each in _PLATFORMS)
        build_data["tag"] = f"py3-none-{platforms}"

    def finalize(self, *_: Any) -> None:
        """Remove what was compiled."""
        shutil.rmtree(self._made, ignore_errors=True)
