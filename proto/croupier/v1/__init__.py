"""The wire contract: code generated from the `.proto` files beside it."""

import os

# Must be set before grpc is imported: see croupier.net.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
