#!/bin/sh
# The benchmarks. They print figures and judge nothing: machines differ.
set -eu
cd "$(dirname "$0")/../.."
sh deploy/setup.sh dev
.venv/bin/python tests/bench/allocator.py >/dev/null
.venv/bin/python -m tests.bench.core_tasks
.venv/bin/python tests/bench/reoffer.py
.venv/bin/python -m tests.bench.event_log
.venv/bin/python -m tests.bench.shim
.venv/bin/python -m tests.bench.isolation
.venv/bin/python -m tests.bench.reregister
.venv/bin/python -m tests.bench.raw_agents
.venv/bin/python -m tests.bench.live_readers | grep '^{'
.venv/bin/python -m tests.bench.exec | grep '^{'
.venv/bin/python -m tests.bench.memory
.venv/bin/python -m tests.bench.futures
