"""The event log: every event of the core in order, so that a run can be replayed.

Rule: the log never delays or fails the master. If it cannot be written, the master logs a warning
and gives the log up.

A log is a sequence of numbered files of JSON lines. The first line of a file is its `head`. In all
but the first file of a run, the head is followed by a summary of the state. Every further line is
an event, its outcome and a digest of all decisions so far. The same events give the same digest.

- `lines`: the content of lines, and the summary of the state.
- `codec`: their names; lines as bytes, and back.
- `digest`: the record of decisions, whole and in short.
- `files`: names and numbers. `recorder`, `writer`: the shell; all other modules are pure.
"""
