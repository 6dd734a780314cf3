"""The step of hatchling that compiles the agent's C programs.

A wheel with them is for machines of one architecture, and its agents need no compiler. Without a
compiler, the wheel is for all machines, and their agents compile the programs when they start. An
editable installation has them beside their sources; once these change, agents compile them.
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
    """Adds the programs of `shim/shim.c` and `isolation/container.c`, named by their sources."""

    PLUGIN_NAME = "custom"
    _made = Path("/nonexistent")

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the programs, statically."""
        sources = Path(self.root) / "agent" / _AGENT
        compiling = runpy.run_path(str(sources / "shim" / "compiling.py"))
        made = self._made = Path(tempfile.mkdtemp(prefix="croupier-wheel-"))
        for name, told in _VERSIONS.items():
            source = sources / f"{name}.c"
            program = made / compiling["program_name"](source)
            why = compiling["compile_program"](program, source, told, (compiling["STATIC"],))
            if why:
                self.app.display_warning(f"agents will need a C compiler for {source.name}: {why}")
            elif version == "editable":
                for old in source.parent.glob(f"{source.stem}-*"):
                    old.unlink()
                shutil.move(program, source.parent)
            else:
                path = Path(_AGENT, name).with_name(program.name)
                build_data["force_include"][str(program)] = str(path)
                build_data["pure_python"] = False
        if build_data["pure_python"]:
            return
        platforms = ".".join(f"{each}_{platform.machine()}" for each in _PLATFORMS)
        build_data["tag"] = f"py3-none-{platforms}"

    def finalize(self, *_: Any) -> None:
        """Remove what was compiled."""
        shutil.rmtree(self._made, ignore_errors=True)
