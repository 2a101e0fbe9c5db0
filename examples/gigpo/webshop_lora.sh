accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/webshop_lora.yaml" "$@"
