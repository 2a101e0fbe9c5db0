"""The seven trainers by name: one class, seven presets (:mod:`trainers.trl_adapter.presets`)."""

from __future__ import annotations

from trainers.trl_adapter.trainer import StepwiseTrainer


class GiGPOTrainer(StepwiseTrainer):
    """Group-in-group policy optimisation (Feng et al. 2025, arXiv:2505.10978)."""

    algorithm = "gigpo"


class GRPOTrainer(StepwiseTrainer):
    """Group relative policy optimisation (Shao et al. 2024, arXiv:2402.03300) on step samples."""

    algorithm = "grpo"


class DAPOTrainer(StepwiseTrainer):
    """GRPO with dynamic sampling and a higher upper clip (Yu et al. 2025, arXiv:2503.14476)."""

    algorithm = "dapo"


class GSPOTrainer(StepwiseTrainer):
    """GRPO with one ratio per reply (Zheng et al. 2025, arXiv:2507.18071)."""

    algorithm = "gspo"


class RLOOTrainer(StepwiseTrainer):
    """Leave-one-out baselines (Ahmadian et al. 2024, arXiv:2402.14740) over episodes."""

    algorithm = "rloo"


class ReinforcePPTrainer(StepwiseTrainer):
    """REINFORCE++ (Hu 2025, arXiv:2501.03262): token returns whitened over the batch."""

    algorithm = "reinforce_pp"


class PPOTrainer(StepwiseTrainer):
    """PPO (Schulman et al. 2017, arXiv:1707.06347) with a critic of its own."""

    algorithm = "ppo"
