python -m trainers.trl_adapter --config "$(dirname "$0")/pictures.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/pictures
