#!/bin/sh
# A real cluster on this machine, the DRF paper's example and a word count; then all is ended.
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh
exec .venv/bin/python deploy/demo.py
