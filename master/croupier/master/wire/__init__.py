"""The core's messages and events to and from protobuf."""
