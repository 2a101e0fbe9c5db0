accelerate launch -m trainers.trl_adapter --config "$(dirname "$0")/blackjack.yaml" "$@" &&
  python -m trainers.trl_adapter.plot runs/gigpo_blackjack
