"""Environments that can be shown as text, as a picture, or both."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from agent_envs.core.env import AgentEnv, Obs
from agent_envs.core.errors import MissingExtra, one_of
from agent_envs.core.spaces import TextSpace
from agent_envs.core.tasks import TaskSet

OBS_MODES = ("text", "image", "both")


def pillow(feature: str) -> Any:
    """The ``PIL`` package with its drawing modules, or MissingExtra naming the ``vision`` extra."""
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError:
        raise MissingExtra(feature, "vision") from None
    return PIL


class VisualEnv(AgentEnv):
    """An :class:`AgentEnv` with ``obs_mode``.

    A subclass writes :meth:`_text` and :meth:`_picture` of the current state instead of building
    observations itself: ``_start``, ``_act`` and ``_restore`` end in :meth:`_see`.

    Args:
        image_shape: (height, width) of the picture in pixels.
        obs_mode: ``text`` (str), ``image`` (uint8, (height, width, 3)) or ``both`` (a dict with
            ``image`` and ``text``).
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        tasks: TaskSet,
        *,
        image_shape: tuple[int, int],
        obs_mode: str = "text",
        **options: Any,
    ) -> None:
        one_of("obs_mode", obs_mode, OBS_MODES)
        super().__init__(tasks, **options)
        self.obs_mode = obs_mode
        self._window: Any = None
        picture = Box(0, 255, (*image_shape, 3), np.uint8)
        spaces = {
            "text": TextSpace(),
            "image": picture,
            "both": Dict({"image": picture, "text": TextSpace()}),
        }
        self.observation_space = spaces[obs_mode]
        if obs_mode != "text":
            pillow(f"obs_mode={obs_mode!r}")

    @abstractmethod
    def _text(self) -> str:
        """The state in words: enough to play without the picture."""

    @abstractmethod
    def _picture(self) -> np.ndarray:
        """The state as uint8 (height, width, 3); read-only where it is cached."""

    def _see(self) -> Obs:
        """The observation of the current state in the chosen mode."""
        if self.obs_mode == "text":
            return self._text()
        picture = self._picture()
        if not picture.flags.writeable:  # cached: what is handed out is the user's own
            picture = picture.copy()
        return picture if self.obs_mode == "image" else {"image": picture, "text": self._text()}

    def _anchor(self) -> str:
        return self._text()

    def render(self) -> Any:
        """``ansi``: the text; ``rgb_array``: the picture; ``human``: a window where a display is."""
        if self.render_mode == "ansi":
            return self._text()
        if self.render_mode == "rgb_array":
            return self._picture()
        if self.render_mode == "human":
            self._show()
        return None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        found = super().reset(seed=seed, options=options)
        if self.render_mode == "human":
            self._show()
        return found

    def step(self, action: str) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        found = super().step(action)
        if self.render_mode == "human":
            self._show()
        return found

    def _show(self) -> None:
        from agent_envs.core.window import Window

        if self._window is None:
            self._window = Window(self._name())
        self._window.show(self._picture())

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None
        super().close()
