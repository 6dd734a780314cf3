"""Connections between agents, masters, frameworks and operators: channels, addresses, backoff.

gRPC's fork handlers crash children that are started by a real fork (grpc/grpc#43055).
Croupier never uses gRPC after a fork, so they are turned off before grpc is imported.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's core prints lines of its own; we log the same events in one clear line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
