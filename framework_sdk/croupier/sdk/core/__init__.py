"""What the SDK remembers and decides, without a clock, a socket or a loop."""
