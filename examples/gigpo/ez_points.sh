accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/ez_points.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_ez_points
