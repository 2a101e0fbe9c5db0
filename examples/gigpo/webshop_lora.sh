accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/webshop_lora.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_webshop_lora
