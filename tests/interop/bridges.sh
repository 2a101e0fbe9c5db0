#!/usr/bin/env bash
# SkyRL-gym, GEM and RLlib themselves on our environments, each in a virtual environment of its own (minutes, most of
# it pip; results in docs/bridges.md):
#   tests/interop/bridges.sh [PYTHON THAT HAS AGENT-ENVS AND TORCH [FOLDER FOR THE ENVIRONMENTS [PART...]]]
# parts: trl (in the first PYTHON, needs the extra train), skyrl, gem, rllib. What PYTHON has is seen by the others, so
# that no second PyTorch is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-.venv/bin/python}
folder=${2:-/tmp/agent-envs-interop}
parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=(trl skyrl gem rllib)
mkdir -p "$folder"
export OMP_NUM_THREADS=1
shared=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')

# environment NAME PACKAGE... -- PACKAGE WITHOUT DEPENDENCIES...
environment() {
  local venv=$folder/$1 full=()
  shift
  [ -e "$venv/ready" ] && return
  rm -rf "$venv"
  "$python" -m venv "$venv"
  echo "$shared" > "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/shared.pth"
  while [ "$1" != -- ]; do full+=("$1"); shift; done
  shift
  "$venv/bin/pip" install -q --no-deps "$@"
  [ ${#full[@]} -eq 0 ] || "$venv/bin/pip" install -q "${full[@]}"
  touch "$venv/ready"
}

check() {
  PYTHONPATH=$PWD "$1" -m pytest -q -p no:cacheprovider tests/test_bridges.py -k "$2"
}

check_trl() {
  check "$python" "" # the loop and the messages of absent libraries too
}

check_skyrl() {
  environment skyrl -- 'skyrl-gym==0.4.*'
  check "$folder/skyrl/bin/python" skyrl
}

check_gem() {
  environment gem reasoning-gym==0.1.23 -- gem-llm==0.1.0 math-verify latex2sympy2-extended antlr4-python3-runtime==4.13.2 msgspec==0.19.0 nltk==3.9.1
  check "$folder/gem/bin/python" gem
}

check_rllib() {
  # RLlib 2.60 demands gymnasium 1.2.2
  environment rllib gymnasium==1.2.2 ormsgpack lz4 tensorboardX msgpack jsonschema click protobuf pandas scipy pyarrow -- 'ray==2.60.*' dm-tree attrs wrapt absl-py
  check "$folder/rllib/bin/python" rllib
}

for part in "${parts[@]}"; do
  echo "== $part"
  "check_$part"
done
