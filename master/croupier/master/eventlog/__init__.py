"""The event log: all that the core was given, in order, so that it can be given it again.

Rule: the log is for looking back. It never holds up the master, and never fails it: what
cannot be written is given up, loudly.

A log is some files, numbered; each is lines of JSON. `head` opens a file and, in all but the
first of a run, is followed by how things stood; every further line is an event, what followed
from it, and a digest of all decisions so far. The same events give the same digest.

- `codec`: values as JSON and back, by their types alone; nothing in a log is ever executed.
- `lines`: what the lines are. `digest`, `outcome`: what is kept of decisions.
- `summary`: how things stand. `files`: names and numbers.
- `recorder` and `writer`: the shell.

All but the shell is pure, and is what `croupier replay` reads a log with.
"""
