accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/alfworld_7b.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/grpo_alfworld_7b
