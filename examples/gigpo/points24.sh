accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/points24.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_points24
