"""``rollout``, ``eval``, ``replay`` and ``bench``."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from rich.table import Column, Table

from agent_envs import evaluation, trajectories
from agent_envs.agent.group import AgentGroup, Turn
from agent_envs.agent.rollout import Rollout
from agent_envs.cli.common import (
    POLICY_HELP,
    Backend,
    DataDir,
    Difficulty,
    EnvId,
    Imports,
    Json,
    MaxSteps,
    Options,
    Policies,
    Seed,
    Split,
    err,
    full_id,
    import_modules,
    make_policy,
    out,
    print_json,
    progress_bar,
    read_options,
)
from agent_envs.core.errors import OptionError
from agent_envs.group.vector import GroupVectorEnv
from agent_envs.registration import make_group

Groups = Annotated[int, typer.Option(min=1, help="Number of groups; each has its own task.")]
Size = Annotated[int, typer.Option(min=1, help="Replicas per group, all from the same start.")]
AblePolicies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        "-p",
        help=f"{POLICY_HELP} Default: expert and random, as far as they can play here.",
    ),
]
NumEnvs = Annotated[int, typer.Option(min=1, help="Tasks in play at the same time.")]


def _summary(rollout: Rollout, episodes: int) -> dict[str, Any]:
    """Success over all replicas (one that could not start has failed), and over groups."""
    last = [steps[-1] for steps in rollout.trajectories().values()]
    solved = [step for step in last if step.info.get("won")]
    low, high = evaluation.wilson_interval(len(solved), episodes)
    groups = {start.group for start in rollout.starts.values()}
    return {
        "episodes": episodes,
        "success_rate": len(solved) / episodes,
        "interval": [low, high],
        "groups_solved": len({step.group for step in solved}) / max(1, len(groups)),
        "mean_reward": sum(step.reward for step in rollout.steps) / episodes,
        "mean_steps": len(rollout.steps) / episodes,
        "invalid_action_rate": float(
            np.mean([not s.action_valid for s in rollout.steps] or [False])
        ),
        "failures": len(rollout.failures),
        "first_failure": next(iter(rollout.failures.values()), ""),
    }


def rollout(
    env_id: EnvId,
    policies: AblePolicies = None,
    groups: Groups = 8,
    group_size: Size = 8,
    seed: Seed = 0,
    split: Split = None,
    difficulty: Difficulty = None,
    data_dir: DataDir = None,
    max_steps: MaxSteps = None,
    options: Options = None,
    backend: Backend = "inline",
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Save all trajectories (JSON lines) here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Play one episode per replica with each policy; compare them side by side."""
    name = full_id(env_id)
    made = read_options(name, split, difficulty, data_dir, max_steps, options)
    chosen = [
        (policy, make_policy(policy, seed, name)) for policy in policies or _able(name, made, seed)
    ]
    rows: dict[str, dict[str, Any]] = {}
    group = make_group(name, groups, group_size, backend=backend, **made)
    try:
        with _writer(out_file, group) as file:  # opened first: a bad path costs no play
            for label, policy in chosen:
                played = _play(AgentGroup(group), policy, label, seed, quiet=as_json)
                rows[label] = _summary(played, group.num_envs)
                if file is not None:
                    file.write(played, label)
    finally:
        group.close()
    if as_json:
        print_json({"env_id": name, "seed": seed, "policies": rows})
    else:
        _print_rollout(f"{name}: {groups} groups x {group_size}, seed {seed}", rows)
        if out_file is not None:
            out.print(f"trajectories: {out_file}", highlight=False)
    if all(row["failures"] == group.num_envs for row in rows.values()):
        raise typer.Exit(1)  # nothing was played; the reason stands above


def _able(env_id: str, options: dict[str, Any], seed: int) -> list[str]:
    """Those of expert and random that can play: an expert must be there, random needs a list."""
    env: Any = gymnasium.make(env_id, **options)
    try:
        _, info = env.reset(seed=seed)
        able = {"expert": env.unwrapped.profile.has_expert, "random": info["admissible_actions"]}
    except Exception:  # the group closes such replicas one by one and says why
        return ["random"]
    finally:
        env.close()
    if not any(able.values()):
        raise OptionError(f"{env_id} has neither an expert nor listed actions: name a --policy")
    return [label for label in able if able[label]]


def _writer(path: Path | None, group: GroupVectorEnv) -> Any:
    return nullcontext() if path is None else trajectories.TrajectoryWriter(path, group.definition)


def _play(agent: AgentGroup, policy: Any, label: str, seed: int, quiet: bool) -> Rollout:
    total = agent.group.num_envs
    done = steps = solved = 0
    with progress_bar(f"{label:>8}", total, quiet) as update:

        def on_turn(turn: Turn) -> None:
            nonlocal done, steps, solved
            steps += len(turn.steps)
            for step in turn.steps:
                done += step.terminated or step.truncated
                solved += bool(step.terminated and step.info.get("won"))
            update(done, note=f"{steps} steps, {solved} solved")

        return agent.rollout(policy, seed=seed, on_turn=on_turn)  # type: ignore[no-any-return]


def _print_rollout(title: str, rows: dict[str, dict[str, Any]]) -> None:
    table = Table(
        "policy", "success", "95 % interval", "groups solved", "mean steps", "invalid", title=title
    )
    for label, row in rows.items():
        low, high = row["interval"]
        table.add_row(
            label, f"{row['success_rate']:.1%}", f"{low:.1%} to {high:.1%}",
            f"{row['groups_solved']:.1%}", f"{row['mean_steps']:.1f}",
            f"{row['invalid_action_rate']:.1%}",
        )  # fmt: skip
    out.print(table)
    for row in rows.values():
        if row["failures"]:
            err.print(
                f"{row['failures']} replica(s) were closed by an error; the first: {row['first_failure']}",
                highlight=False, markup=False,
            )  # fmt: skip


def evaluate(
    env_id: EnvId,
    policies: Policies = ["expert"],  # noqa: B006 (typer copies it)
    split: Annotated[
        str | None,
        typer.Option(
            help="Split to evaluate. Default: valid_seen; where there is none, the "
            "environment's last split."
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many tasks (needed where endless).")
    ] = None,
    num_envs: NumEnvs = 64,
    seed: Seed = 0,
    difficulty: Difficulty = None,
    data_dir: DataDir = None,
    max_steps: MaxSteps = None,
    options: Options = None,
    backend: Backend = "inline",
    as_json: Json = False,
) -> None:
    """Evaluate policies on every task of a split, each exactly once."""
    name = full_id(env_id)
    made = read_options(name, None, difficulty, data_dir, max_steps, options)
    if "split" in made:
        raise OptionError("the split is named by --split")
    split = split or _held_out(name, made)
    results: dict[str, evaluation.Evaluation] = {}
    for label in policies:
        policy = make_policy(label, seed, name)
        with progress_bar(f"{label:>8}", None, as_json) as update:
            results[label] = evaluation.evaluate(
                policy, name, split=split, num_envs=num_envs, episodes=episodes, seed=seed,
                backend=backend, on_episode=update, **made,
            )  # fmt: skip
    if as_json:
        print_json({label: result.to_dict() for label, result in results.items()})
    else:
        for label, result in results.items():
            _print_evaluation(label, result)
    if all(
        result.episodes and result.errors == len(result.episodes) for result in results.values()
    ):
        raise typer.Exit(1)  # nothing was played to its end; the reason stands above


def _held_out(env_id: str, options: dict[str, Any]) -> str:
    env: Any = gymnasium.make(env_id, **options)
    try:
        splits = env.unwrapped.tasks.splits
    finally:
        env.close()
    return "valid_seen" if "valid_seen" in splits else str(splits[-1])


def _print_evaluation(label: str, result: evaluation.Evaluation) -> None:
    table = Table(
        Column("task type", overflow="fold"),  # whole names also where a terminal is narrow
        "tasks", "success", "95 % interval", "mean steps", "invalid actions",
        title=f"{label} on {result.env_id}, {result.split}",
    )  # fmt: skip
    rows = {**(result.by_type() if len(result.by_type()) > 1 else {}), "all": result}
    for kind, part in rows.items():
        low, high = part.interval
        table.add_row(
            kind, str(len(part.episodes)), f"{part.success_rate:.1%}", f"{low:.1%} to {high:.1%}",
            f"{part.mean_steps:.1f}", f"{part.invalid_action_rate:.1%}",
        )  # fmt: skip
    out.print(table)
    if result.errors:
        first = next(e.error for e in result.episodes if e.error)
        err.print(f"{result.errors} episode(s) ended in an error; the first: {first}", markup=False)


def replay(
    file: Annotated[Path, typer.Argument(help="A file that `rollout --out` wrote.")],
    data_dir: DataDir = None,
    imports: Imports = None,
    as_json: Json = False,
) -> None:
    """Play a trajectory file again and report the first difference (exit code 1)."""
    import_modules(imports)
    overrides = {} if data_dir is None else {"data_dir": data_dir}
    with progress_bar("replay", None, as_json) as update:
        report = trajectories.replay(file, on_trajectory=update, **overrides)
    difference = report.difference
    if as_json:
        print_json(
            {
                "trajectories": report.trajectories,
                "steps": report.steps,
                "difference": None if difference is None else str(difference),
            }
        )
    elif difference is None:
        out.print(f"{report.trajectories} trajectories, {report.steps} steps: all equal")
    else:
        out.print(f"first difference: {difference}", markup=False, highlight=False)
    if difference is not None:
        raise typer.Exit(1)


def bench(
    env_id: EnvId,
    groups: Groups = 16,
    group_size: Size = 8,
    seconds: Annotated[float, typer.Option(min=0.01, help="CPU seconds to measure for.")] = 3.0,
    seed: Seed = 0,
    split: Split = None,
    difficulty: Difficulty = None,
    data_dir: DataDir = None,
    options: Options = None,
    backend: Backend = "inline",
    as_json: Json = False,
) -> None:
    """Measure env steps per second with a random policy, prompts built and completions parsed. Where no
    actions are listed the expert plays, and asking it counts too."""
    name = full_id(env_id)
    made = read_options(name, split, difficulty, data_dir, None, options)
    player = _able(name, made, seed)[-1]
    policy = make_policy(player, seed, name)
    group = make_group(name, groups, group_size, backend=backend, **made)
    agent = AgentGroup(group, expert=player == "expert")
    try:
        row = _measure(agent, policy, seed, seconds)
    finally:
        agent.close()
    if as_json:
        print_json({"env_id": name, **row})
        return
    table = Table("measure", "value", title=f"{name}, {groups} x {group_size}, {backend}")
    for key, value in row.items():
        table.add_row(key, f"{value:,.0f}")
    out.print(table)


def _measure(agent: AgentGroup, policy: Any, seed: int, seconds: float) -> dict[str, float]:
    steps, cpu, wall = 0, 0.0, 0.0
    agent.reset(seed=seed)
    while cpu < seconds:
        prompts = agent.waiting or agent.reset()
        if not prompts:  # no replica starts: there would never be a step to measure
            first = next(iter(agent.failures.values()), "no reason given")
            raise OptionError(f"no replica could start; the first: {first}")
        answers = policy.act(prompts)  # not measured: a policy is not the environment
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        agent.step(answers)
        cpu += time.process_time() - cpu_start
        wall += time.perf_counter() - wall_start
        steps += len(answers)
        if wall > 4 * seconds:
            break  # another process does the work
    return {
        "steps": steps,
        "steps per CPU second (this process)": steps / cpu,
        "steps per second": steps / wall,
    }
