"""Conversion between the core's messages and events and protobuf."""
