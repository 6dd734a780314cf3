"""`croupier simulate` and `croupier replay`, which are commands of the simulator."""

from __future__ import annotations

from croupier.ctl.app import app

app.command(
    "croupier.sim.cli:app",
    name="simulate",
    help="Run an experiment in virtual time, or golden vectors, against the real allocator.",
)
app.command(
    "croupier.sim.replay.cli:app",
    name="replay",
    help="Replay a master's event log: check its decisions, or compare other settings.",
)
