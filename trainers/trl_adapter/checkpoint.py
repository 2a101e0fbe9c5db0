"""Checkpoints that are whole or absent, which ones stay, and what a run may go on from."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_envs.core import AgentEnvError, OptionError
from agent_envs.core.files import write_atomic

_NAME = re.compile(r"checkpoint-(\d+)$")


class SaveError(AgentEnvError, OSError):
    """A checkpoint could not be written; earlier ones are whole."""


def checkpoints(run: str | Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    found = [p for p in Path(run).glob("checkpoint-*") if _NAME.search(p.name) and p.is_dir()]
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """The optimizer step in a checkpoint folder's name."""
    match = _NAME.search(checkpoint.name)
    if match is None:
        raise OptionError(f"{checkpoint} is no checkpoint folder (checkpoint-STEP)")
    return int(match[1])


@contextmanager
def staged(
    run: str | Path, name: str, main: bool = True, wait: Callable[[], None] = lambda: None
) -> Iterator[Path]:
    """A folder to write into; on success ``name`` inside it becomes ``run/name``, on disk, whole.

    Where writing fails (disk full, no permission) nothing of it stays.

    Args:
        main: this process makes the folder, and gives it its name in the end.
        wait: returns when all processes have called it, where several write into the folder.

    Raises:
        SaveError: saying which checkpoint is the last whole one.
    """
    run = Path(run)
    staging = run / f".{name}.saving"
    try:
        if main:
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
        wait()
        yield staging
        wait()
        if main:
            _sync(staging / name)
            shutil.rmtree(run / name, ignore_errors=True)
            (staging / name).rename(run / name)
        wait()
    except Exception as error:
        if isinstance(error, SaveError) or not _is_about_writing(error):
            raise
        whole = checkpoints(run)
        last = f"the last whole checkpoint is {whole[-1]}" if whole else "no checkpoint before it"
        raise SaveError(f"{run / name} could not be written: {error}; {last}") from error
    finally:
        if main:
            shutil.rmtree(staging, ignore_errors=True)


def _is_about_writing(error: Exception) -> bool:
    """An OSError, or what torch and safetensors make of one."""
    if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError | ValueError) and (
        "writ" in text or "PytorchStream" in text
    )


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def rotate(run: str | Path, keep: int, best: str | None) -> None:
    """Delete all but the ``keep`` newest checkpoints and the best one."""
    for old in checkpoints(run)[:-keep]:
        if old.name != best:
            shutil.rmtree(old, ignore_errors=True)


def read_json(path: str | Path) -> dict[str, Any] | None:
    """The file's object; None where there is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: str | Path, value: Any) -> None:
    """Write an object, whole or not at all."""
    write_atomic(path, (json.dumps(value, indent=1) + "\n").encode())


def checkpoint_to_resume(run: str | Path, wanted: str, steps_per_rollout: int) -> Path:
    """The checkpoint that ``run.resume`` names.

    Only the boundary between two rollouts can be resumed exactly: in between, the samples of the
    rollout are lost.

    Raises:
        OptionError: no such checkpoint, one of another run, or one inside a rollout; lists the valid
            ones.
    """
    whole = [p for p in checkpoints(run) if step_of(p) % steps_per_rollout == 0]
    names = ", ".join(p.name for p in whole) or "none"
    if wanted == "latest":
        if not whole:
            raise OptionError(f"nothing to resume: {run} holds no checkpoint")
        return whole[-1]
    path = next((p for p in (Path(wanted), Path(run) / wanted) if p.is_dir()), None)
    if path is None or read_json(path / "trainer_state.json") is None:
        raise OptionError(f"cannot resume from {wanted}: no whole checkpoint; valid here: {names}")
    if path.resolve().parent != Path(run).resolve():
        raise OptionError(
            f"cannot resume from {wanted}: it is no checkpoint of this run ({run}); valid here: {names}"
        )
    if step_of(path) % steps_per_rollout:
        raise OptionError(
            f"cannot resume from {wanted}: step {step_of(path)} lies inside a rollout (of "
            f"{steps_per_rollout} steps), whose samples are lost; valid here: {names}"
        )
    return path
