python -m trainers.trl_adapter --config "$(dirname "$0")/grpo.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/grpo
