#!/bin/sh
# Branch coverage of unit, scenario and property tests; at least 90 % in each pure package.
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh dev
PATH="$PWD/.venv/bin:$PATH"
export PATH
pure="proto/croupier/model master/croupier/master/allocator master/croupier/master/core
    agent/croupier/agent/core framework_sdk/croupier/sdk/core"

COVERAGE_FILE="$(mktemp -d)/coverage"
export COVERAGE_FILE
trap 'rm -rf "$(dirname "$COVERAGE_FILE")"' EXIT
coverage run -m pytest -q tests/unit tests/scenarios tests/property "$@"
coverage report --skip-covered --skip-empty --sort=cover
failed=""
for package in $pure; do
    echo "== $package: $(coverage report --include="$package/*" --format=total) %"
    coverage report --include="$package/*" --fail-under=90 >/dev/null || failed="$failed $package"
done
[ -z "$failed" ] || { echo "cover: below 90 %:$failed" >&2; exit 1; }
