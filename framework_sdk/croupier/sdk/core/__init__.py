"""The SDK's decisions and state, without a clock, a socket or a loop."""
