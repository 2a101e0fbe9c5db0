#!/usr/bin/env bash
# OpenEnv's unmodified client (and server) against ours, the client in a virtual environment of its own:
#   tests/interop/openenv.sh [PYTHON THAT HAS AGENT-ENVS [FOLDER OF THE CLIENT'S ENVIRONMENT]]
# Under two minutes, most of it pip. openenv itself comes without its 128 packages; what its client imports does
# need fastmcp, fastapi, requests, pyyaml and websockets. Without a package registry the check is skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-.venv/bin/python}
venv=${2:-.venv-openenv}
if [ ! -e "$venv/ready" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  # the one step that may fail for want of a registry; after it everything must work
  if ! "$venv/bin/pip" download -q --no-deps --retries 1 --timeout 20 -d "$venv/wheel" 'openenv==0.10.*'; then
    echo "SKIPPED: openenv 0.10 cannot be installed here (no package registry?)"
    rm -rf "$venv"
    exit 0
  fi
  "$venv/bin/pip" install -q 'fastmcp>=3,<4' 'fastapi>=0.116,<0.122' requests pyyaml 'websockets>=15.0.1'
  cp -r examples/openenv "$venv/hub"
  "$venv/bin/pip" install -q --no-deps "$venv"/wheel/openenv-*.whl "$venv/hub"
  touch "$venv/ready"
fi
PYTHONPATH=$PWD exec "$python" -m tests.interop.openenv_check "$venv/bin/python"
