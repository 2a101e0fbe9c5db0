python -m trainers.trl_adapter --config "$(dirname "$0")/dapo.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/dapo
