accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/alfworld_dynamic.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_alfworld_dynamic
