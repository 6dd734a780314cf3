"""The master's decisions: pure. `step(state, event, now)` says what must happen.

An event is something that happened outside; an effect is something that the shell must
do. What is between is here: agents, frameworks, offers, tasks, and their rules. Nothing in
this package waits, reads a clock, draws a random number, logs or knows the wire.
"""
