accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/alfworld.yaml" "$@"
