accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/alfworld.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gspo_alfworld
