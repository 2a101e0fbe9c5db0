python -m trainers.trl_adapter --config "$(dirname "$0")/grpo.yaml" "$@"
