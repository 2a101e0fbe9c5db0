python -m trainers.trl_adapter --config "$(dirname "$0")/ppo.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/ppo
