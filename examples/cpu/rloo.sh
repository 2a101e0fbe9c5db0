python -m trainers.trl_adapter --config "$(dirname "$0")/rloo.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/rloo
