#!/bin/sh
# Unit, scenario and property tests, and those of faults of shims and stores, with all their random runs; TEST_EFFORT=1000 makes ten times as many.
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
TEST_EFFORT="${TEST_EFFORT:-100}" exec .venv/bin/python -X dev -m pytest \
    tests/unit tests/scenarios tests/property tests/integration/shim/test_shim_faults.py \
    tests/integration/master/test_store_killed.py "$@"
