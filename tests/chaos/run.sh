#!/bin/sh
# Chaos, in virtual time and with real processes: SEED, SEEDS, ROUNDS and PARTITIONS are numbers.
set -eu
cd "$(dirname "$0")/../.."
sh deploy/setup.sh dev >&2
exec .venv/bin/python -m tests.chaos --seed "${SEED:-1}" --seeds "${SEEDS:-500}" \
    --rounds "${ROUNDS:-3}" --partitions "${PARTITIONS:-2}"
