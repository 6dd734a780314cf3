"""The wire contract: code generated from the `.proto` files beside it."""

import os

# Before grpc is imported; the reason is in croupier.net.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
