"""The master's decisions, pure: `step(state, event, now)` returns the effects.

Nothing in this package waits, reads a clock, draws a random number, logs or imports protobuf.
"""
