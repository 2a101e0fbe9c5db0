"""What happens beside training: metrics.jsonl, progress, sample trajectories, a friendly Ctrl-C."""

from __future__ import annotations

import json
import logging
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import TrainerCallback

from agent_envs.agent import Rollout
from agent_envs.core import AgentEnvError
from agent_envs.core.files import named
from agent_envs.trajectories import TrajectoryWriter

logger = logging.getLogger("trainers.trl_adapter")

_SHOWN = 4  # trajectories of each sample
_NOTES = {  # figures beside the bar
    "success_rate": "success {:.0%}", "return_mean": "return {:.2f}",
    "eval_success_rate": "held-out {:.0%}",
}  # fmt: skip


class MetricsFile(TrainerCallback):
    """Appends one JSON object per update to ``metrics.jsonl``: ``step``, ``update``, all figures.

    A resumed run drops the rows after its checkpoint, which it is about to write again.
    """

    def __init__(self, path: Path, steps_per_rollout: int) -> None:
        self.path, self._steps = path, steps_per_rollout

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        kept = [row for row in rows if state.global_step and _step(row) <= state.global_step]
        self.path.write_text("".join(f"{row}\n" for row in kept), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        if not any(name.startswith("eval_") for name in logs):
            self.write(state.global_step, logs)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any
    ) -> None:
        if state.is_world_process_zero and metrics:
            self.write(state.global_step, metrics)

    def write(self, step: int, figures: dict[str, Any]) -> None:
        """Add a row; NaN, which is no JSON, becomes null."""
        row = {"step": step, "update": step // self._steps}
        row |= {key: _plain(value) for key, value in figures.items()}
        with named(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _step(row: str) -> float:
    try:
        return float(json.loads(row)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a torn line


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Progress(TrainerCallback):
    """A bar over updates with the latest figures; turns of the rollout in play beside it."""

    def __init__(self, bar: Any, updates: int, steps_per_rollout: int) -> None:
        self._bar, self._updates, self._steps = bar, updates, steps_per_rollout
        self._turns, self._done = 0, 0
        self._shown: dict[str, str] = {}

    def on_turn(self, turn: Any) -> None:
        """For the trainer's ``on_turn``."""
        self._turns += 1
        self._bar(self._done, self._updates, note=f"{self._note()} · turn {self._turns}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._show(state)  # a resumed run starts where it stopped

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._show(state)

    def _show(self, state: Any) -> None:
        self._turns, self._done = 0, state.global_step // self._steps
        self._bar(self._done, self._updates, note=self._note())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        for name, text in _NOTES.items():
            if (logs or {}).get(name) is not None:
                self._shown[name] = text.format(logs[name])
        self._bar(self._done, self._updates, note=self._note())

    def _note(self) -> str:
        return ", ".join(self._shown.values())


class StepProgress(TrainerCallback):
    """A bar over optimizer steps with the latest loss."""

    def __init__(self, bar: Any) -> None:
        self._bar, self._note = bar, ""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._bar(state.global_step, state.max_steps, note=self._note)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in (logs or {}):
            self._note = f"loss {float(logs['loss']):.3f}"


class SampleTrajectories(TrainerCallback):
    """Writes a few trajectories of a rollout every so many updates, for `agent-envs replay`."""

    def __init__(self, trainer: Any, folder: Path, every: int) -> None:
        self._trainer, self._folder, self._every = trainer, folder, every

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        steps = self._trainer.config.steps_per_rollout
        update = state.global_step // steps
        if not state.is_world_process_zero or state.global_step % steps or update % self._every:
            return
        rollout = self._trainer.last_rollout
        if rollout is None:
            return
        path = self._folder / f"update-{update:06}.jsonl"
        with TrajectoryWriter(path, self._trainer.collector.agent.group.definition) as writer:
            writer.write(first_trajectories(rollout, _SHOWN), label=f"update {update}")


def first_trajectories(rollout: Rollout, count: int) -> Rollout:
    """The first so many trajectories of a rollout."""
    chosen = set(sorted(rollout.starts)[:count])
    starts = {t: s for t, s in rollout.starts.items() if t in chosen}
    replicas = {s.replica for s in starts.values()}
    return Rollout(
        [step for step in rollout.steps if step.trajectory in chosen],
        starts,
        {i: text for i, text in rollout.failures.items() if i in replicas},
    )


class StopAtBoundary(TrainerCallback):
    """After :meth:`request`: finish the updates of the current rollout, save, stop.

    Args:
        steps_per_rollout: optimizer steps between two boundaries.
        share: whether any process was asked to stop, so that all stop at the same boundary.
    """

    def __init__(
        self, steps_per_rollout: int, share: Callable[[bool], bool] = lambda requested: requested
    ) -> None:
        self._steps, self._share, self.requested = steps_per_rollout, share, False

    def request(self) -> None:
        self.requested = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self._steps == 0 and self._share(self.requested):
            control.should_save = control.should_training_stop = True


class StopIfAllFail(TrainerCallback):
    """Ends a run in which every episode of some updates on end failed: it would learn nothing to its end.

    Args:
        trainer: whose last rollout tells why.
        episodes: of an update, over all processes.
        patience: such updates on end; an env server may come back meanwhile.

    Raises:
        AgentEnvError: in all processes at the same update, since the figures are sums over them.
    """

    def __init__(self, trainer: Any, episodes: int, patience: int) -> None:
        self._trainer, self._episodes, self._patience = trainer, episodes, patience
        self._on_end = 0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        failed = (logs or {}).get("failed_episodes")
        if failed is None:
            return
        self._on_end = self._on_end + 1 if failed >= self._episodes else 0
        if self._on_end == self._patience:
            reasons = self._trainer.last_rollout.failures.values()
            raise AgentEnvError(
                f"all episodes of {self._patience} update(s) on end failed, so nothing was learned; the "
                f"first: {next(iter(reasons), 'see the other processes')}"
            )


class AsConfigured(TrainerCallback):
    """A resumed run saves, logs and evaluates as its configuration says now, not as it began."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.compute_steps(args, state.max_steps)  # the checkpoint brought its own


@contextmanager
def interruptible(stop: StopAtBoundary) -> Iterator[None]:
    """First Ctrl-C (or SIGTERM): stop at the next boundary. A second one stops at once."""

    def handler(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.request()
        logger.warning("finishing the current updates, then saving; once more stops at once")

    before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
