"""The user of a peer on this machine, by the kernel's table of connections.

Executors of Mesos present no credential. A process of the executor's user could read its memory,
and so may speak for it; another user may not.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

_TABLES: Final = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}


def uid_of_peer(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the uid that owns the connection from `peer` to `own`; None if it is unknown."""
    version = 6 if ":" in peer[0] else 4
    wanted = [_written(peer), _written(own)]
    with suppress(OSError), _TABLES[version].open() as table:
        for line in table:
            parts = line.split()
            if parts[1:3] == wanted:
                return int(parts[7])
    return None


def _written(address: tuple[str, int]) -> str:
    """Return an address as the kernel writes it: words in the order of the machine."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    packed = socket.inet_pton(family, address[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
