#!/bin/sh
# Pin all that Croupier runs on, with hashes, in deploy/requirements.lock. Needs uv.
#   deploy/lock.sh             add what pyproject.toml needs, and keep the other versions
#   deploy/lock.sh --upgrade   take the newest versions
# The file names no index. It holds for Linux and CPython 3.11 to 3.13.
set -eu
cd "$(dirname "$0")/.."
command -v uv >/dev/null 2>&1 || { echo "lock: uv not found (pip install uv)" >&2; exit 1; }
uv pip compile pyproject.toml --extra dask --extra futures --extra oidc --extra otel --extra yaml --universal \
    --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "sh deploy/lock.sh" --quiet "$@" \
    --output-file deploy/requirements.lock
