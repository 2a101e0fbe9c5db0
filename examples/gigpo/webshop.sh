accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/webshop.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_webshop
