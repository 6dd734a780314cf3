#!/bin/sh
# Run the DRF paper's example and a word count on a cluster on this machine; then end everything.
set -eu
cd "$(dirname "$0")/.."
sh deploy/setup.sh
exec .venv/bin/python deploy/demo.py
