#!/bin/sh
# Hostile peers against real daemons, half of the time with authentication and half without.
# SECS: duration; SEED: as printed by an earlier run.
set -eu
cd "$(dirname "$0")/../.."
sh deploy/setup.sh dev
half="$((${SECS:-60} / 2))"
result=0
for auth in "" --no-auth; do
    # shellcheck disable=SC2086  # no word, or one
    .venv/bin/python -m tests.fuzz --seconds "$half" --seed "${SEED:-0}" $auth "$@" || result=$?
done
exit "$result"
