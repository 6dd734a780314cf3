"""`croupier doctor`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict

from croupier.cli.flags import LOCAL, JsonListFlag, MasterFlag, Target
from croupier.cli.terminal import print_lines
from croupier.ctl.app import app
from croupier.ctl.doctor import Finding, fail
from croupier.ctl.doctor.cluster import cluster_findings
from croupier.ctl.doctor.masters import credential_findings, master_findings
from croupier.model.errors import InvalidRequest


@app.command(name="doctor")
def doctor(*, master: MasterFlag = LOCAL, as_json: JsonListFlag = False) -> int:
    """Check credentials, certificates, clocks, masters and agents from this machine.

    Each check is one line: ok, warn or fail, and what to do.

    Exit codes: 0 no check failed; 1 a check failed; 2 wrong argument.
    """
    return asyncio.run(_diagnose(master, as_json))


async def _diagnose(target: Target, as_json: bool) -> int:
    found: list[Finding] = []
    async for finding in findings(target):
        found.append(finding)
        if not as_json:
            print_lines(finding.line)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    return 1 if any(each.outcome == "fail" for each in found) else 0


async def findings(target: Target) -> AsyncIterator[Finding]:
    """Yield all findings; the rest is left out if the credentials cannot be used."""
    try:
        credentials = target.credentials()
    except InvalidRequest as error:
        yield fail("credentials", str(error))
        return
    now_s, is_usable = time.time(), True
    for finding in credential_findings(credentials, now_s):
        is_usable = is_usable and not (finding.outcome == "fail" and finding.check == "files")
        yield finding
    if not is_usable:
        return
    for address in target.addresses:
        async for finding in master_findings(address, credentials.security, now_s):
            yield finding
    async for finding in cluster_findings(target):
        yield finding
