accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/ez_points.yaml" "$@"
