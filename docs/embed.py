"""Put what code knows into the pages: ``python docs/embed.py``; ``--check`` only says what is stale.

A line ``<!-- example NAME -->`` is followed by ``examples/NAME.py``, ``<!-- environment ID -->`` by what the
environment's docstring and an episode's start say, ``<!-- environments -->`` by the list of them,
``<!-- info_keys -->`` by their info keys, ``<!-- defaults ALGORITHM -->`` by an algorithm's preset.
All but examples end with ``<!-- end -->``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium

from agent_envs.cli.show import facts_of
from agent_envs.core import INFO_KEYS
from agent_envs.registration import BUILT_IN, VARIANTS, env_class

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_EXAMPLE = re.compile(r"(<!-- example (\w+) -->\n)(?:\n?```python\n.*?\n```\n)?", re.DOTALL)
_BLOCK = re.compile(r"<!-- (\w+)( [\w/-]+)? -->\n(?:(?:(?!<!--).)*<!-- end -->\n)?", re.DOTALL)


def page_name(env_id: str) -> str:
    """``AgentEnv/EZPoints-v0`` -> ``ezpoints``."""
    return env_id.partition("/")[2].rpartition("-v")[0].lower()


def _example(match: re.Match[str]) -> str:
    code = (ROOT / "examples" / f"{match[2]}.py").read_text(encoding="utf-8").rstrip()
    return f"{match[1]}```python\n{code}\n```\n"


def docstring_as_markdown(env_id: str) -> str:
    """A class's docstring with Markdown's headings and code marks."""
    text = inspect.getdoc(env_class(env_id)) or ""
    text = re.sub(r":\w+:``?([^`]+)``?", r"`\1`", text)
    return re.sub(r"``(.+?)``", r"`\1`", text.replace("``` ``", "``")).replace("\n### ", "\n## ")


def _environment(env_id: str) -> Iterator[str]:
    env: Any = gymnasium.make(env_id).unwrapped
    observation, info = env.reset(seed=0)
    yield docstring_as_markdown(env_id)
    yield "\n## How an episode begins\n"
    yield f"`reset(seed=0)`, task `{info['task_id']}`:\n\n```text\n{observation}\n```\n"
    if info["admissible_actions"]:
        actions = info["admissible_actions"]
        shown = ", ".join(f"`{action}`" for action in actions[:6])
        yield f"Admissible: {shown}{f' and {len(actions) - 6} more' if len(actions) > 6 else ''}.\n"
    yield "\n## As made without options\n\n| fact | value |\n|---|---|"
    for fact, value in facts_of(env).items():
        yield f"| {fact.replace('_', ' ')} | {_cell(fact, value)} |"
    sizes = [f"`{name}`" for name, (base, _) in VARIANTS.items() if base == env_id]
    if sizes:
        yield f"| also registered | {', '.join(sizes)} |"
    env.close()


def _cell(fact: str, value: Any) -> str:
    if fact == "splits":
        return ", ".join(f"{s} ({'endless' if n is None else f'{n:,}'})" for s, n in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _environments(_: str) -> Iterator[str]:
    yield "| id | what it is |\n|---|---|"
    for env_id in BUILT_IN:
        about = (inspect.getdoc(env_class(env_id)) or "").partition("\n")[0]
        yield f"| [`{env_id}`]({page_name(env_id)}.md) | {about} |"


def _info_keys(_: str) -> Iterator[str]:
    yield "| key | type | meaning |\n|---|---|---|"
    for name, key in INFO_KEYS.items():
        sparse = " (only where it is so)" if key.sparse else ""
        yield f"| `{name}` | {key.type.__name__} | {key.meaning}{sparse} |"


def _defaults(algorithm: str) -> Iterator[str]:
    from trainers.trl_adapter.config import TrainConfig
    from trainers.trl_adapter.presets import preset_of, resolve

    made, preset = resolve(TrainConfig(algorithm=algorithm)), preset_of(algorithm)
    yield "| field | default |\n|---|---|"
    fields = _LOSS_FIELDS + _ESTIMATOR_FIELDS[preset.estimator] + ("rollout.dynamic",)
    for section, _, name in (field.partition(".") for field in fields):
        yield f"| `{section}.{name}` | {getattr(getattr(made, section), name)} |"
    yield f"| smallest `rollout.group_size` | {preset.replicas} |"


_GROUPS = ("advantage.baseline_over", "advantage.singleton")
_LOSS_FIELDS = tuple(
    f"loss.{name}"
    for name in ("loss_type", "importance", "clip_low", "clip_high", "dual_clip", "kl_coef")
)
_ESTIMATOR_FIELDS = {  # what each estimator reads
    "gigpo": ("advantage.norm", "advantage.gamma", "advantage.step_weight", *_GROUPS),
    "grpo": ("advantage.norm", *_GROUPS),
    "rloo": _GROUPS,
    "reinforce_pp": ("advantage.gamma", "advantage.group_baseline"),
    "ppo": ("advantage.gamma", "advantage.lam", "advantage.chain", "critic.share_trunk"),
}

_WRITERS: dict[str, Callable[[str], Iterator[str]]] = {
    "environment": _environment,
    "environments": _environments,
    "defaults": _defaults,
    "info_keys": _info_keys,
}


def _block(match: re.Match[str]) -> str:
    writer = _WRITERS.get(match[1])
    if writer is None:
        return match[0]
    text = "\n".join(writer((match[2] or "").strip()))
    return f"<!-- {match[1]}{match[2] or ''} -->\n{text}\n<!-- end -->\n"


def embedded(text: str) -> str:
    """``text`` with the current form of all that its marks name."""
    return _BLOCK.sub(_block, _EXAMPLE.sub(_example, text))


def main() -> int:
    stale = []
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if embedded(text) != text:
            stale.append(str(path.relative_to(DOCS)))
            if "--check" not in sys.argv:
                path.write_text(embedded(text), encoding="utf-8")
    print("stale: " + ", ".join(stale) if stale else "up to date")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
