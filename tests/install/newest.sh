#!/usr/bin/env bash
# Do the newest versions that setup.cfg allows still pass? A fresh environment without constraints.txt, then the tests:
#   tests/install/newest.sh [EXTRAS [PYTEST ARGUMENT...]]        EXTRAS: default dev,train,lora
# With the extra train or lora torch comes first: from TORCH_INDEX if that is set, such as the CPU builds' index. What was
# installed, and how that differs from constraints.txt, is printed first. .github/workflows/newest.yml runs it weekly.
set -euo pipefail
cd "$(dirname "$0")/../.."
unset PYTHONPATH
extras=${1:-dev,train,lora}
tests=("${@:2}")
[ ${#tests[@]} -gt 0 ] || tests=(-n 2)
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1
"${PYTHON:-python3}" -m venv "$venv"
case ",$extras," in *,train,* | *,lora,*)
  "$venv/bin/pip" install -q torch ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} ;;
esac
# no other build may replace that one
"$venv/bin/pip" list --format freeze | grep '^torch==' >"$venv/torch.txt" || true
"$venv/bin/pip" install -q --upgrade --upgrade-strategy eager -c "$venv/torch.txt" ".[$extras]"
"$venv/bin/pip" check
echo "newer or older than constraints.txt, name by name:"
pinned() { grep -v '^#' "$1" | LC_ALL=C sort -f; }
{ diff -i <(pinned constraints.txt) <("$venv/bin/pip" list --format freeze | pinned /dev/stdin) || true; } |
  sed -n 's/^> //p' | grep -viE '^(agent-envs|pip|wheel)==' || echo "nothing"
"$venv/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}"
