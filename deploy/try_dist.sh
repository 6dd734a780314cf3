#!/bin/sh
# Install the wheel and the sdist of deploy/dist.sh, each into empty environments of all Pythons from
# 3.11 to 3.14 that are found, and run a task there: sh deploy/try_dist.sh [DIRECTORY].
set -eu
directory="$(cd "${1:-$(dirname "$0")/../dist}" && pwd)"
cd "$(dirname "$0")/.."
. tests/find_python.sh
version="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"
work="$(mktemp -d)"
local=""
# shellcheck disable=SC2317
clean() { [ -z "$local" ] || { kill "$local"; wait "$local"; } 2>/dev/null || true; rm -rf "$work"; }
trap clean EXIT

fail() { echo "try_dist: $1" >&2; exit 1; }

run_task() {  # DIRECTORY of programs
    # Credentials of the cluster go to $XDG_CONFIG_HOME, not to the user's own.
    XDG_CONFIG_HOME="$work/config" "$1/croupier" local --agents 1 --cpus 1 --mem 256MB --disk 256MB \
        --master-port 0 --http-port 0 --isolation none >"$work/local.log" 2>&1 &
    local=$!
    for _ in $(seq 300); do
        grep -q 'Ctrl-C ends' "$work/local.log" && break
        kill -0 "$local" 2>/dev/null || break
        sleep 0.2
    done
    address="$(sed -n 's/^ *master  *//p' "$work/local.log")"
    [ -n "$address" ] || fail "croupier local did not start: $(cat "$work/local.log")"
    said="$(XDG_CONFIG_HOME="$work/config" "$1/croupier" run --master "$address" --timeout 60 --mem 32MB -- echo dealt)"
    kill "$local"
    wait "$local" || fail "croupier local ended with $?: $(cat "$work/local.log")"
    local=""
    [ "$said" = dealt ] || fail "the task's output is '$said'"
}

try() {  # VERSION PYTHON KIND FILE
    [ -f "$4" ] || fail "$4 is missing: sh deploy/dist.sh"
    env="$work/$1-$3"
    "$2" -m venv "$env"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$4" ||
        fail "the $3 cannot be installed on Python $1"
    "$env/bin/python" -m pip check --disable-pip-version-check >/dev/null || fail "pip check fails on Python $1"
    for each in croupier croupier-master croupier-agent; do
        line="$("$env/bin/$each" --version)"
        case "$line" in "$version"*) ;; *) fail "$each --version says '$line' on Python $1" ;; esac
    done
    # Nothing but the plots of the laboratory needs an extra.
    "$env/bin/croupier" simulate list >/dev/null || fail "croupier simulate needs an extra on Python $1"
    run_task "$env/bin"
    echo "try_dist: Python $1, $3: $line, and a task ran"
    rm -rf "$env"
}

missing=""
tried=""
for python in 3.11 3.12 3.13 3.14; do
    program="$(find_python "$python")"
    if [ -z "$program" ]; then missing="$missing $python"; continue; fi
    try "$python" "$program" wheel "$(echo "$directory/croupier-$version"-*.whl)"
    try "$python" "$program" sdist "$directory/croupier-$version.tar.gz"
    tried="$tried $python"
done
echo "try_dist: tried on Python:${tried:- none}"
echo "try_dist: not found, not tried:${missing:- none}"
[ -n "$tried" ]
