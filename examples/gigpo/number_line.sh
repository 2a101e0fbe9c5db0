accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/number_line.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_number_line
