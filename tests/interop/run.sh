#!/usr/bin/env bash
# Other libraries and other versions against ours, each in a virtual environment of its own (about ten minutes,
# most of it pip; results in docs/openenv.md):
#   tests/interop/run.sh [PYTHON THAT HAS AGENT-ENVS [FOLDER FOR THE ENVIRONMENTS [PART...]]]
# parts: openenv (clients 0.10, 0.4.1 and openenv-core 0.3.0), verifiers
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath -s "${1:-.venv/bin/python}")
folder=${2:-/tmp/agent-envs-interop}
parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=(openenv verifiers)
mkdir -p "$folder"
export PYTHONPATH=$PWD OMP_NUM_THREADS=1

# environment NAME PACKAGE... -- PACKAGE WITHOUT DEPENDENCIES...
environment() {
  local venv=$folder/$1 full=()
  shift
  [ -e "$venv/ready" ] && return
  rm -rf "$venv"
  python3 -m venv "$venv"
  while [ "$1" != -- ]; do full+=("$1"); shift; done
  shift
  "$venv/bin/pip" install -q "${full[@]}"
  "$venv/bin/pip" install -q --no-deps "$@"
  touch "$venv/ready"
}

check_openenv() {
  local needs=('fastapi>=0.116,<0.122' requests pyyaml httpx 'websockets>=15.0.1')
  rm -rf "$folder/hub" && cp -r examples/openenv "$folder/hub"
  environment openenv-0.10 'fastmcp>=3,<4' "${needs[@]}" -- 'openenv==0.10.*' "$folder/hub"
  environment openenv-0.4 'fastmcp>=3' "${needs[@]}" -- openenv==0.4.1
  environment openenv-core-0.3 'fastmcp>=3' "${needs[@]}" -- openenv-core==0.3.0
  "$python" -m tests.interop.openenv_check "$folder"/openenv-{0.10,0.4,core-0.3}/bin/python
}

check_verifiers() {
  # openenv 0.10 and verifiers 0.4 cannot share an environment: mcp<2 against mcp==2.0.0
  environment verifiers verifiers==0.4.0 fastmcp==4.1.1 fastapi requests pyyaml uv -- openenv==0.4.1
  "$python" -m tests.interop.verifiers_check "$folder/verifiers"
}

for part in "${parts[@]}"; do
  echo "== $part"
  "check_$part"
done
