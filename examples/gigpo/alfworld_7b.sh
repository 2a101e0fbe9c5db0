accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/alfworld_7b.yaml" "$@"
