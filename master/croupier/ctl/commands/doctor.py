"""`croupier doctor`."""

from __future__ import annotations

from croupier.cli.flags import LOCAL, JsonListFlag, MasterFlag
from croupier.ctl.app import app


@app.command(name="doctor")
def doctor(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> int:
    """Check credentials, certificates, clocks, masters and agents from this machine.

    Each check is one line: ok, warn or fail, and what to do.

    Exit codes: 0 no check failed; 1 a check failed; 2 wrong argument.
    """
    from croupier.ctl.doctor.command import diagnose

    return diagnose(master, as_json=as_json)
