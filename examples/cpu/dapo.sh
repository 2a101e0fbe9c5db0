python -m trainers.trl_adapter --config "$(dirname "$0")/dapo.yaml" "$@"
