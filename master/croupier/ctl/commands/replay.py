"""`croupier replay`, a command of the simulator."""

from __future__ import annotations

from croupier.ctl.app import app

app.command(
    "croupier.sim.replay.cli:app",
    name="replay",
    help="Replay a master's event log: check its decisions, or compare other settings.",
)
