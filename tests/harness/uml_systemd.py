"""Replaces the first process of a guest by systemd, which runs the command as a unit.

The guest's `/etc`, `/var/lib` and `/var/log` are empty but for what programs need. `/etc` has no
unit of the machine: a command starts the units that it writes to `/run/systemd/system`.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any, NoReturn

SYSTEMD = Path("/lib/systemd/systemd")
UNITS = Path("/run/systemd/system")
KEPT = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "hosts", "ssl", "localtime")
FINISH = """[Unit]
Description=The command of the guest
[Service]
Type=oneshot
WorkingDirectory={cwd}
StandardOutput=append:{own}/output
StandardError=append:{own}/output
ExecStart=/bin/sh -c {line}
"""


def prepare(mount: Any) -> None:
    """Hide the machine's settings and state."""
    kept = Path("/tmp/etc")
    kept.mkdir()
    for name in KEPT:
        if (Path("/etc") / name).is_dir():
            shutil.copytree(Path("/etc") / name, kept / name, symlinks=True)
        elif (Path("/etc") / name).exists():
            shutil.copy(Path("/etc") / name, kept / name)
    for place in ("/etc", "/var/lib", "/var/log"):
        mount("tmpfs", place, data="mode=0755")
    shutil.copytree(kept, "/etc", dirs_exist_ok=True, symlinks=True)
    (Path("/etc") / "machine-id").write_text("0" * 31 + "1\n")


def boot(spec: dict[str, Any], env: dict[str, str]) -> NoReturn:
    """Become systemd, whose only task is the command."""
    own = spec["own"]
    line = f"{shlex.join(spec['command'])}; echo -n $? >{own}/code; sync; systemctl poweroff -ff"
    UNITS.mkdir(parents=True)
    quoted = "'" + line.replace("%", "%%").replace("$", "$$").replace("'", "'\\''") + "'"
    (UNITS / "guest.service").write_text(FINISH.format(cwd=spec["cwd"], own=own, line=quoted))
    environment = " ".join(f'"{name}={value}"' for name, value in env.items())
    drop = UNITS.parent / "system.conf.d"
    drop.mkdir()
    (drop / "guest.conf").write_text(
        f"[Manager]\nDefaultEnvironment={environment}\nShowStatus=no\nLogTarget=console\n"
    )
    os.execve(SYSTEMD, [str(SYSTEMD), "--unit=guest.service"], env)
