accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/alfworld_lora.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/grpo_alfworld_lora
