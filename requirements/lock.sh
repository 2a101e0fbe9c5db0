#!/usr/bin/env bash
# Write rollout.txt and train.txt anew: every version and the hashes of all its files, for the README's two commands,
# from setup.cfg and constraints.txt. Needs uv (pip install uv==0.13.9) and the package registry; seconds.
# tests/test_locked.py says when they are out of step.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "uv is not here: pip install uv==0.13.9" >&2; exit 1; }

# lock FILE OPTION...: our own build needs setuptools, so it is locked too
lock() {
  local out=requirements/$1
  shift
  { echo "# Made by requirements/lock.sh; how to install from it: docs/installs.md"
    echo 'setuptools>=77' | uv pip compile -q --no-config --no-header --universal --python-version 3.11 \
      --generate-hashes --no-annotate -c constraints.txt "$@" setup.cfg -; } >"$out.new"
  mv "$out.new" "$out"
}

lock rollout.txt
lock train.txt --extra train
# torch is no part of it: the builds for CPU and for each CUDA differ in their hashes, and in what they need besides
mapfile -t builds < <(grep -oE '^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==' requirements/train.txt | tr -d =)
lock train.txt --extra train "${builds[@]/#/--no-emit-package=}"
