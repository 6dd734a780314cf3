"""Where the memory of an idle agent goes: what each import adds to the resident set, in MiB.

python -m tests.bench.memory
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

# In the order in which they are imported: what one shares with another counts for the first.
PARTS: Final = (
    ("asyncio with ssl", "asyncio, ssl"),
    ("gRPC", "grpc.aio"),
    ("cyclopts", "cyclopts"),
    ("prometheus-client", "prometheus_client"),
    ("protobuf and the messages", "google.protobuf.message, croupier.v1.agent_pb2"),
    ("the agent's own modules", "croupier.agent.app"),
)
PROGRAM: Final = """
def resident():
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024

before = resident()
print(f"{before:5.1f} the interpreter")
"""


def main() -> None:
    """Print the parts, measured in an interpreter of their own."""
    program = [PROGRAM]
    for name, modules in PARTS:
        program.append(
            f"import {modules}\nnow = resident()\n"
            f"print(f'{{now - before:5.1f}}', {name!r})\nbefore = now\n"
        )
    subprocess.run([sys.executable, "-c", "".join(program)], check=True)


if __name__ == "__main__":
    main()
