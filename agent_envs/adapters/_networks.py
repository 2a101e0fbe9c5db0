"""Small networks for the adapter's observations, as parts of SB3's policies."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from gymnasium.spaces import Box
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from agent_envs.adapters._features import HashedText


class DenseExtractor(BaseFeaturesExtractor):
    """Dense layers that actor and critic share; for grids of a few cells.

    On one core this learns 6x6 rooms sooner than convolutions, whose steps take four times as long
    there; SB3's own ``MlpPolicy`` has two such networks, its ``NatureCNN`` needs 36 pixels.

    Args:
        sizes: units of each layer.
    """

    def __init__(self, observation_space: Box, sizes: tuple[int, ...] = (256, 256)) -> None:
        super().__init__(observation_space, sizes[-1])
        parts: list[nn.Module] = [nn.Flatten()]
        before = prod(observation_space.shape)
        for size in sizes:
            parts += [nn.Linear(before, size), nn.ReLU()]
            before = size
        self.net = nn.Sequential(*parts)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.net(observations)
        return features


class ActionScorer(nn.Module):
    """Scores each offered action by one network that sees the state and that action.

    What it learns about an action does not depend on the action's place in the list.
    """

    def __init__(self, layout: HashedText, hidden: int) -> None:
        super().__init__()
        self.layout = layout
        self.state = nn.Linear(2 * layout.size, hidden)
        self.action = nn.Linear(layout.action_size, hidden)
        self.joint = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.score = nn.Linear(hidden, 1)
        self.latent_dim_pi, self.latent_dim_vf = layout.num_actions, hidden

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        begin = 2 * self.layout.size
        actions = features[:, begin:].reshape(len(features), -1, self.layout.action_size)
        offered = actions[:, :, 0] > 0
        joint = self.joint(self.state(features[:, :begin])[:, None] + self.action(actions))
        scores = self.score(joint)[:, :, 0].masked_fill(~offered, -1e8)
        values = joint.masked_fill(~offered[:, :, None], 0).amax(dim=1)
        return scores, values

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return self.forward(features)[0]

    def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
        return self.forward(features)[1]


class AdmissiblePolicy(ActorCriticPolicy):
    """Chooses among the actions in a :class:`HashedText` row; never one that is not there.

    Args:
        layout: the environment's features (``SB3VecEnv.features``).
        hidden: units of the scoring network.
    """

    def __init__(self, *args: Any, layout: HashedText, hidden: int = 64, **kwargs: Any) -> None:
        self.layout, self.hidden = layout, hidden
        super().__init__(*args, **kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super()._get_constructor_parameters()
        return {**parameters, "layout": self.layout, "hidden": self.hidden}

    def _build_mlp_extractor(self) -> None:
        scorer: Any = ActionScorer(self.layout, self.hidden)  # in the place of SB3's own network
        self.mlp_extractor = scorer.to(self.device)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()  # the scores are the logits
        scorer: Any = self.mlp_extractor
        nn.init.orthogonal_(scorer.score.weight, gain=0.01)
        options = {"lr": lr_schedule(1), **self.optimizer_kwargs}
        self.optimizer = self.optimizer_class(self.parameters(), **options)
