accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/search.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_search
