"""`croupier why`."""

from __future__ import annotations

from croupier.cli.flags import LOCAL, FrameworkName, JsonFlag, MasterFlag
from croupier.ctl.app import app


@app.command
def why(
    framework: FrameworkName,
    /,
    *,
    agent: str = "",
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """Explain why a framework gets no more offers, and what to do about it.

    Parameters
    ----------
    agent
        Id or hostname of an agent: explain why the framework is not offered more of that agent.
    """
    from croupier.ctl.why import explain

    explain(master, framework, agent, as_json=as_json)
