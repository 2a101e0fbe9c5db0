python -m trainers.trl_adapter --config "$(dirname "$0")/reinforce_pp.yaml" "$@"
