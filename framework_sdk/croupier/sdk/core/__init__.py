"""Decisions and memory of the SDK, without a clock, a socket or a loop."""
