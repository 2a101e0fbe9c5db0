accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/sokoban.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/grpo_sokoban
