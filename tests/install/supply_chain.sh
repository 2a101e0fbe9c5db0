#!/usr/bin/env bash
# What the README's two environments are made of, from the locked files: a CycloneDX SBOM of each (validated against its
# schema), their licences, and an audit for known weaknesses. Results in docs/supply_chain.md.
#   tests/install/supply_chain.sh [FOLDER FOR THE RESULTS [ENVIRONMENT...]]      environments: rollout train
# Needs a package registry; minutes. Exit code 1 where anything failed, also where the audit could not be made.
set -euo pipefail
cd "$(dirname "$0")/../.."
unset PYTHONPATH  # a source tree on it would count as installed
out=$(realpath -m "${1:-build/supply_chain}")
environments=("${@:2}")
[ ${#environments[@]} -gt 0 ] || environments=(rollout train)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
failed=0

"$python" -m venv "$work/tools"
"$work/tools/bin/pip" install -q cyclonedx-bom==7.5.0 pip-audit==2.10.1 pip-licenses==5.5.5

install_locked() { # as docs/installs.md has it
  local venv=$1 name=$2
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -q --no-deps --require-hashes -r "requirements/$name.txt"
  if [ "$name" = train ]; then
    "$venv/bin/pip" install -q -c constraints.txt torch==2.13.0
  fi
  "$venv/bin/pip" install -q --no-deps --no-build-isolation .
  "$venv/bin/pip" check
}

for name in "${environments[@]}"; do
  echo "== $name"
  venv=$work/$name
  install_locked "$venv" "$name"
  "$work/tools/bin/cyclonedx-py" environment --validate --output-reproducible -o "$out/$name.cdx.json" "$venv/bin/python"
  "$work/tools/bin/pip-licenses" --python "$venv/bin/python" --format json --with-urls >"$out/$name.licences.json"
  # pip-audit ends well where it could look nothing up, so its report is read and not its exit code
  "$work/tools/bin/pip-audit" --disable-pip --require-hashes -r "requirements/$name.txt" -f json \
    >"$out/$name.audit.json" 2>"$out/$name.audit.log" || true
  "$python" -m tests.install.supply_chain "$name" "$out" || failed=1
  rm -rf "$venv"
done
exit $failed
