accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/alfworld_7b_lora.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_alfworld_7b_lora
