"""How many descriptors peers may take, so that enough are left for the daemon's own work.

A connection is a descriptor. A process that has none left can open no file, start no task and
take no connection at all.
"""

from __future__ import annotations

import resource
from typing import Final

# For peers' gRPC connections, of all descriptors; half of it is more than enough for HTTP.
_GRPC_SHARE: Final = 0.6
_HTTP_SHARE: Final = 0.15
MOST_HTTP: Final = 512


def connection_share() -> int:
    """The most gRPC connections that peers may have."""
    return max(1, int(_limit() * _GRPC_SHARE))


def http_share() -> int:
    """The most HTTP connections. Each may need a file, too."""
    return max(1, min(MOST_HTTP, int(_limit() * _HTTP_SHARE)))


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else min(soft, 2**20)
