"""``list``, ``info`` and ``play``."""

from __future__ import annotations

import inspect
import re
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from rich.markdown import Markdown
from rich.table import Table

from agent_envs.cli.common import (
    DataDir,
    Difficulty,
    EnvId,
    Json,
    MaxSteps,
    Options,
    Seed,
    Split,
    full_id,
    out,
    print_json,
    read_options,
)
from agent_envs.core.env import AgentEnv
from agent_envs.registration import env_class, registered_ids


def _first_line(env_id: str) -> str:
    return (inspect.getdoc(env_class(env_id)) or "").partition("\n")[0]


def list_envs(as_json: Json = False) -> None:
    """List all environments."""
    rows = [{"id": env_id, "about": _first_line(env_id)} for env_id in registered_ids()]
    if as_json:
        print_json(rows)
        return
    table = Table("id", "about")
    for row in rows:
        table.add_row(row["id"], row["about"])
    out.print(table)


def facts_of(env: AgentEnv) -> dict[str, Any]:
    """What an environment says of itself, as made with its options."""
    profile = env.profile
    return {
        "splits": {split: env.tasks.count(split) for split in env.tasks.splits},
        "data_source": env.tasks.source,
        "max_steps": env.max_steps,
        "start_options": ["task_index", *env.start_options],
        "parser": profile.parser.name,
        "memory": {"name": profile.memory.name, **profile.memory.options},
        "portable_state": profile.portable_state,
        "expert": profile.has_expert,
    }


def access(doc: str) -> dict[str, str]:
    """reads, writes, executes, connects to: as the docstring's section Access says; {} without one."""
    section = doc.partition("### Access\n")[2].partition("\n### ")[0]
    found = re.findall(r"^\* ([\w ]+): (.*?)(?=^\* |\Z)", section, re.MULTILINE | re.DOTALL)
    return {fact: " ".join(said.split()) for fact, said in found}


def info(
    env_id: EnvId,
    as_json: Json = False,
    data_dir: DataDir = None,
    options: Options = None,
) -> None:
    """Explain an environment: actions, observations, rewards, options, data, and what it reads, writes,
    executes and connects to."""
    name = full_id(env_id)
    env: AgentEnv = gymnasium.make(  # type: ignore[assignment]
        name, **read_options(name, None, None, data_dir, None, options)
    ).unwrapped
    facts = facts_of(env)
    if as_json:
        doc = inspect.getdoc(type(env)) or ""
        print_json({"id": name, "doc": doc, "access": access(doc), **facts})
        return
    out.print(Markdown(f"# {name}\n\n{inspect.getdoc(type(env))}"))
    table = Table("fact", "value", title="As configured here")
    for key, value in facts.items():
        if key == "splits":
            value = ", ".join(f"{s} ({'endless' if n is None else n})" for s, n in value.items())
        table.add_row(key, str(value))
    out.print(table)


def play(
    env_id: EnvId,
    seed: Seed = 0,
    task_index: Annotated[int | None, typer.Option(help="Play this task of the split.")] = None,
    split: Split = None,
    difficulty: Difficulty = None,
    data_dir: DataDir = None,
    max_steps: MaxSteps = None,
    options: Options = None,
) -> None:
    """Play in the terminal: type an action or its number, `?` to see the expert's, `!` to take it,
    `q` to stop."""
    name = full_id(env_id)
    made = read_options(name, split, difficulty, data_dir, max_steps, options)
    env: AgentEnv = gymnasium.make(name, **made).unwrapped  # type: ignore[assignment]
    start = None if task_index is None else {"task_index": task_index}
    observation, facts = env.reset(seed=seed, options=start)
    if facts["task"] not in _shown(observation):  # then nothing else would tell it
        out.print(f"Task: {facts['task']}", markup=False, highlight=False)
    total = 0.0
    while True:
        out.print(f"\n[bold]{facts['steps']:>3}[/]", end="  ", highlight=False)
        out.print(_shown(observation), markup=False, highlight=False)
        if env.terminated or env.truncated:
            break
        actions = facts["admissible_actions"]
        for number, action in enumerate(actions or (), 1):
            out.print(f"  {number:>3}  {action}", markup=False, highlight=False)
        action = _ask(env, actions)
        if action is None:
            return
        observation, reward, _, _, facts = env.step(action)
        total += reward
    out.print(f"\n{'Solved' if facts['won'] else 'Not solved'}; reward {total:g}.")


def _shown(observation: Any) -> str:
    """An observation for a terminal, which shows no pictures."""
    if isinstance(observation, dict):
        return "\n".join(map(_shown, observation.values()))
    if isinstance(observation, np.ndarray) and observation.ndim == 3:
        height, width = observation.shape[:2]
        return f"(a picture of {width} x {height}; the page of `agent-envs serve` shows it)"
    return str(observation)


def _ask(env: AgentEnv, actions: list[str] | None) -> str | None:
    """An action from the keyboard; None to stop."""
    while True:
        try:
            text = input("> ")
        except EOFError:
            return None
        if text.strip() == "q":
            return None
        if text.strip() in ("?", "!"):
            expert = env.expert_action()
            out.print(f"  the expert: {expert}", markup=False, highlight=False)
            if text.strip() == "?" or expert is None:
                continue
            return expert
        if actions and text.strip() in actions:  # "7" may be a card, and not the seventh action
            return text.strip()
        if actions and text.strip().isdecimal() and 1 <= int(text) <= len(actions):
            return actions[int(text) - 1]
        if text.isprintable():
            return text
        out.print("  that cannot be sent; type an action or a number")
