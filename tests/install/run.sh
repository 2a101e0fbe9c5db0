#!/usr/bin/env bash
# The core and each extra of setup.cfg alone in a fresh virtual environment, with a small use of it; results in
# docs/installs.md. Needs a package registry (minutes; about 3 GB at most on disk at once):
#   tests/install/run.sh [--python PYTHON] [--json FILE] [--keep] [EXTRA...]     without EXTRA: core and all
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" -m tests.install.extras "$@"
