#!/bin/sh
# The benchmarks. They print figures and judge nothing: machines differ.
set -eu
cd "$(dirname "$0")/../.."
sh deploy/setup.sh dev
.venv/bin/python tests/bench/allocator.py
.venv/bin/python tests/bench/allocator.py 1000 1000
.venv/bin/python tests/bench/reoffer.py
