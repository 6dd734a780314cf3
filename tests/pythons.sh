#!/bin/sh
# Unit, scenario and property tests on every Python from 3.11 to 3.14 that is found.
#   tests/pythons.sh [ARGUMENT OF PYTEST]...
#   tests/pythons.sh ends    most unit tests and scenarios, on the oldest and the newest that is found
# A version is found on PATH or among those of pyenv. Each has its own environment in .venvs. With
# `ends`, the version of .venv is left out: `make test` runs all tests on it.
set -eu
cd "$(dirname "$0")/.."
versions="3.11 3.12 3.13 3.14"

. tests/find_python.sh

run_tests() {  # VERSION PYTHON [ARGUMENT OF PYTEST]...
    version="$1"; python="$2"; shift 2
    echo; echo "== Python $version: pytest $*"
    mkdir -p .venvs
    PYTHON="$python" sh deploy/setup.sh "$extra" ".venvs/$version" || return 1
    ".venvs/$version/bin/python" -X dev -m pytest -p no:cacheprovider "$@"
}

found=""; missing=""
for version in $versions; do
    if [ -n "$(find_python "$version")" ]; then
        found="$found $version"
    else
        missing="$missing $version"
    fi
done
extra=dev
if [ "${1:-}" = ends ]; then
    shift
    extra=test
    # Tests that take long, and those of processes, run on one version only.
    set -- tests/scenarios tests/unit/api tests/unit/apps/batch tests/unit/apps/cron tests/unit/model \
        tests/unit/net tests/unit/wire tests/unit/sdk tests/unit/futures "$@"
    mine="$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    ends="$(echo "$found" | xargs -n 1 | sed -n '1p;$p' | uniq | grep -vx "$mine" || true)"
    versions="$(echo "$ends" | xargs)"
else
    set -- tests/unit tests/scenarios tests/property "$@"
    versions="$found"
fi

tested=""; failed=""
for version in $versions; do
    tested="$tested $version"
    run_tests "$version" "$(find_python "$version")" "$@" || failed="$failed $version"
done
echo
echo "== tested on Python:${tested:- none}"
echo "== not found, not tested:${missing:- none}"
echo "== failed on Python:${failed:- none}"
[ -z "$failed" ] && { [ -n "$tested" ] || [ "$extra" = test ]; }
