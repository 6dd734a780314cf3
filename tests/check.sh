#!/bin/sh
# Format, lint, types, import contracts and generated code: everything but the tests.
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
PATH="$PWD/.venv/bin:$PATH"
export PATH

step() { echo; echo "== $*"; "$@"; }

step ruff format --check .
step ruff check .
step mypy
step lint-imports --no-cache
step buf lint proto
step python proto/generate.py --check
echo "check: all passed"
