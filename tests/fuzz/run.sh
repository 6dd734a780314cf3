#!/bin/sh
# Hostile peers against real daemons. SECS: duration; SEED: as printed by an earlier run.
set -eu
cd "$(dirname "$0")/../.."
sh deploy/setup.sh dev
exec .venv/bin/python -m tests.fuzz --seconds "${SECS:-60}" --seed "${SEED:-0}" "$@"
