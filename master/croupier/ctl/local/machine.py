"""The resources and free ports of this machine."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from croupier.ctl.local.plan import HOST, Machine
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.limits import MIB


def this_machine(work_dir: Path) -> Machine:
    """Return the resources to divide among agents."""
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        mem_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        disk_mib=shutil.disk_usage(work_dir).free // MIB,
    )


def port_to_use(flag: str, port: int) -> int:
    """Return `port`, or any free one if it is 0.

    Raises:
        InvalidRequest: if it is not a port.
        Unavailable: if it is taken; the message names `flag`.
    """
    if not 0 <= port <= 65535:
        raise InvalidRequest(f"{flag}: {port} is not a port (0-65535)")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {HOST}:{port}: {error.strerror} (choose another with {flag})"
            ) from None
        return int(probe.getsockname()[1])
