"""The wire contract: code generated from the `.proto` files beside it."""

import os

# Before grpc is imported; the reason stands in croupier.rpc.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
