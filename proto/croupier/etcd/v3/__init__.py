"""Messages of etcd: code generated from the `.proto` file beside it."""

import os

# Before grpc is imported; the reason is in croupier.net.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
