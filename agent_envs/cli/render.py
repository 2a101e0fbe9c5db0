"""``render``: pictures of a start, of an episode, or of a recorded trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from agent_envs import trajectories
from agent_envs.cli.common import (
    DataDir,
    Difficulty,
    Imports,
    Options,
    Seed,
    Split,
    full_id,
    import_modules,
    out,
    read_options,
)
from agent_envs.core.env import AgentEnv
from agent_envs.core.errors import OptionError, one_of
from agent_envs.core.seeding import keyed_seed
from agent_envs.core.visual import pillow

_GAP = 4  # pixels between the pictures of a strip


def render(
    source: Annotated[
        str, typer.Argument(metavar="ID|FILE", help="Environment id, or a trajectory file.")
    ],
    path: Annotated[
        Path, typer.Argument(metavar="OUT", help="Where to: .png (a picture or strip) or .gif.")
    ],
    seed: Seed = 0,
    policy: Annotated[
        str, typer.Option(help="Who plays in a strip or gif: expert or random.")
    ] = "expert",
    steps: Annotated[int, typer.Option(min=0, help="At most so many steps.")] = 50,
    strip: Annotated[
        bool, typer.Option(help="A .png of the whole episode rather than of its start.")
    ] = False,
    trajectory: Annotated[int, typer.Option(help="Which trajectory of the file.")] = 0,
    split: Split = None,
    difficulty: Difficulty = None,
    data_dir: DataDir = None,
    options: Options = None,
    imports: Imports = None,
) -> None:
    """Draw an environment's start (.png), an episode (.png --strip, .gif), or a recorded one."""
    import_modules(imports)
    one_of("file type", path.suffix.lower(), (".png", ".gif"))
    steps = steps if strip or path.suffix.lower() == ".gif" else 0
    given = (split, difficulty, data_dir, None, options)
    if Path(source).suffix == ".jsonl":
        content = trajectories.read_trajectories(Path(source))
        made = read_options(trajectories.spec_in(source, content.header).id, *given)
        frames = _recorded(content, trajectory, steps, made)
    else:
        name = full_id(source)
        frames = _episode(_make(name, read_options(name, *given)), seed, policy, steps)
    save(frames, path)
    out.print(f"{path}: {len(frames)} picture(s) of {frames[0].shape[1]} x {frames[0].shape[0]}")


def _make(env_id: str, options: dict[str, Any]) -> AgentEnv:
    spec = gymnasium.spec(env_id)
    pillow("render")
    env: AgentEnv = gymnasium.make(spec, **{**options, "render_mode": "ansi"}).unwrapped  # type: ignore[assignment]
    if "rgb_array" not in env.metadata["render_modes"]:
        raise OptionError(f"{env_id} has no pictures: it is text only")
    env.render_mode = "rgb_array"
    return env


def _picture(env: AgentEnv) -> np.ndarray:
    picture: np.ndarray = env.render()
    return picture


def _episode(env: AgentEnv, seed: int, policy: str, steps: int) -> list[np.ndarray]:
    one_of("policy", policy, ("expert", "random"))
    _, info = env.reset(seed=seed)
    frames = [_picture(env)]
    while len(frames) <= steps and not (env.terminated or env.truncated):
        actions = info["admissible_actions"]
        action = env.expert_action() if policy == "expert" else None
        if action is None:
            if not actions:
                raise OptionError("no expert and no admissible actions: nothing to play")
            action = actions[keyed_seed(seed, len(frames)) % len(actions)]
        *_, info = env.step(action)
        frames.append(_picture(env))
    return frames


def _recorded(
    content: trajectories.TrajectoryFile, trajectory: int, steps: int, overrides: dict[str, Any]
) -> list[np.ndarray]:
    one_of("trajectory", trajectory, content.starts)
    made = {**content.header["options"], **overrides}
    env = _make(content.header["env_id"], {k: v for k, v in made.items() if k != "render_mode"})
    actions = trajectories.actions_of(content, trajectory)
    start = content.starts[trajectory]
    env.reset(seed=start["seed"], options=start["options"])
    frames = [_picture(env)]
    for action in actions[:steps]:
        env.step(action)
        frames.append(_picture(env))
    return frames


def save(frames: list[np.ndarray], path: Path) -> None:
    """One picture, a strip side by side (.png), or an animation (.gif)."""
    image = pillow("saving pictures").Image
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".gif":
        first, *rest = (image.fromarray(frame) for frame in frames)
        first.save(path, save_all=True, append_images=rest, duration=250, loop=0)
        return
    gap = np.full((frames[0].shape[0], _GAP, 3), 255, np.uint8)
    pieces = [piece for frame in frames for piece in (frame, gap)][:-1]
    image.fromarray(np.concatenate(pieces, axis=1)).save(path)
