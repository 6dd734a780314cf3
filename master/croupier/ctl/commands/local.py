"""`croupier local`."""

from __future__ import annotations

from dataclasses import replace

from croupier.ctl.app import app
from croupier.ctl.local.plan import LOCAL_SPEC, LocalSpec
from croupier.ctl.local.running import run_local


@app.command
def local(*master_flags: str, spec: LocalSpec = LOCAL_SPEC) -> int:
    """Run a master and agents on this machine until Ctrl-C.

    A daemon that ends is restarted, on the same ports and files. Only you can use the cluster: your
    commands and frameworks find its credentials in ~/.config/croupier/credentials.

    Args:
        master_flags: Flags of croupier-master, after --, such as -- --offer-lease 30.
    """
    return run_local(replace(spec, master_flags=master_flags))
