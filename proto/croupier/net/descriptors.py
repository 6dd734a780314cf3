"""Shares of the process's descriptors for the connections of peers.

A connection takes a descriptor. A process without a free one can open no file, start no task and
accept no connection.
"""

from __future__ import annotations

import resource
from typing import Final

# Shares of all descriptors. The rest is for the daemon's own files and processes.
_GRPC_SHARE: Final = 0.6
_HTTP_SHARE: Final = 0.15
MOST_HTTP: Final = 512


def connection_share() -> int:
    """Return the limit of gRPC connections of peers."""
    return max(1, int(_limit() * _GRPC_SHARE))


def http_share() -> int:
    """Return the limit of HTTP connections. Each may need a file, too."""
    return max(1, min(MOST_HTTP, int(_limit() * _HTTP_SHARE)))


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else min(soft, 2**20)
