"""gRPC services: they translate, and decide nothing."""
