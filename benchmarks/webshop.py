"""WebShop: steps and searches, against a naive restatement; memory at 1,000 and at more products.

``python -m benchmarks.webshop [--data DIR --episodes FILE] [--large 100000]``

``DIR`` holds the original's files, ``FILE`` recorded episodes (their goals and actions are played); without
them the generated shop and its expert's episodes. CPU time of one process; best and median of five.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import typer
from rich.console import Console

import agent_envs
from agent_envs.envs.webshop.generator import generate
from agent_envs.envs.webshop.product import Product
from benchmarks.games import duration, rate
from benchmarks.naive_shop import NaiveShop
from benchmarks.report import Row, machine, table
from benchmarks.timing import ONE_THREAD

GROUPS, SIZE = 16, 8
Episode = tuple[str, int, list[str]]  # split, task index, actions


def recorded_episodes(path: Path) -> list[Episode]:
    """Goals and actions of the recordings."""
    found = []
    for episode in json.loads(path.read_text(encoding="utf-8")):
        index = episode["goal_index"]
        if index >= 500:  # one group plays one split
            found.append(("train", index - 500, [step["a"] for step in episode["steps"]]))
    return found


def expert_episodes(count: int) -> list[Episode]:
    env: Any = gymnasium.make("AgentEnv/WebShop-v0").unwrapped
    found = []
    for index in range(count):
        env.reset(options={"task_index": index})
        actions = []
        while not (env.terminated or env.truncated):
            actions.append(env.expert_action())
            env.step(actions[-1])
        found.append(("train", index, actions))
    return found


def group_work(episodes: list[Episode], **options: Any) -> Callable[[], int]:
    """Plays all episodes, 16 at a time by 8 replicas each; returns the number of steps."""
    group = agent_envs.make_group(
        "AgentEnv/WebShop-v0", GROUPS, SIZE, max_steps=None, split="train", **options
    )
    batches = [episodes[i : i + GROUPS] for i in range(0, len(episodes) - GROUPS + 1, GROUPS)]

    def work() -> int:
        steps = 0
        for batch in batches:
            group.reset(seed=0, options={"task_index": [index for _, index, _ in batch]})
            for turn in range(max(len(actions) for *_, actions in batch)):
                given = [a[turn] if turn < len(a) else None for *_, a in batch for _ in range(SIZE)]
                group.step(given)
                steps += sum(action is not None for action in given)
        return steps

    work()
    return work


def naive_work(episodes: list[Episode], env: Any) -> Callable[[], int]:
    """The same episodes up to the purchase, on the naive shop; its pages are checked against ours once."""
    shop = NaiveShop(products(env))
    scripts = []
    for _, index, actions in episodes:
        observation, info = env.reset(options={"task_index": index})
        assert shop.start(info["task"]) == observation
        known = []
        for action in actions[:-1]:
            observation, *_, info = env.step(action)
            try:
                same = info["is_action_valid"] and shop.step(action) == observation
            except KeyError:
                same = False
            if not same:  # what it does not know, such as sub pages
                break
            known.append(action)
        scripts.append((env.task, known))

    def work() -> int:
        for task, actions in scripts:
            shop.start(task)
            for action in actions:
                shop.step(action)
        return sum(len(actions) for _, actions in scripts)

    return work


def products(env: Any) -> list[Product]:
    catalogue = env.shop.catalogue
    return [catalogue.product(number) for number in range(catalogue.size)]


MEASURE = """
import gc, json, resource, sys, time
def resident():
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() / 2**20
"""
OPEN = (
    MEASURE
    + """
import gymnasium, agent_envs, regex, rapidfuzz
data = sys.argv[1] or None
before, begun = resident(), time.process_time()
env = gymnasium.make("AgentEnv/WebShop-v0", data_dir=data).unwrapped
env.reset(seed=0)
opened = time.process_time() - begun
for seed in range(200):
    env.reset(seed=seed)
    while not (env.terminated or env.truncated):
        env.step(env.expert_action())
catalogue = env.shop.catalogue
queries = [catalogue.product(i).title for i in range(0, catalogue.size, 97)][:200]
for query in queries: env.shop.search(query)
begun = time.process_time()
for query in queries: env.shop.search(query)
query_ms = (time.process_time() - begun) / len(queries) * 1e3
shop = resident() - before
others = [gymnasium.make("AgentEnv/WebShop-v0", data_dir=data).unwrapped for _ in range(500)]
begun = resident()
for i, other in enumerate(others):
    other.reset(seed=i)
    other.step(other.expert_action()); other.step(other.expert_action())
print(json.dumps({"open s": opened, "ms a query": query_ms, "MB of the shop": shop,
                  "kB a replica": (resident() - begun) * 1024 / 500, "MB in all": resident()}))
"""
)
NAIVE = (
    MEASURE
    + """
import gymnasium, agent_envs
from benchmarks.webshop import NaiveShop, products
env = gymnasium.make("AgentEnv/WebShop-v0", data_dir=sys.argv[1] or None).unwrapped
own = products(env)
first = NaiveShop(own)
before = resident()
more = [NaiveShop(own) for _ in range(3)]
print(json.dumps({"kB a replica": (resident() - before) * 1024 / 3}))
"""
)
COMPILE = (
    MEASURE
    + """
from pathlib import Path
from agent_envs.envs.webshop.importer import compile_files, find_files
begun = time.perf_counter()
compile_files(find_files(Path(sys.argv[1])), Path(sys.argv[2]))
print(json.dumps({"compile wall s": time.perf_counter() - begun,
                  "compile peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""
)


def fresh(code: str, *arguments: str) -> dict[str, float]:
    """Run ``code`` in a process of its own; it prints its figures as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, check=True, env={**os.environ, **ONE_THREAD},
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_original(folder: Path, made: Iterable[Product]) -> None:
    """Products in the original's files, with their nouns."""
    names = ("items_shuffle", "items_ins_v2", "nouns")
    files = [(folder / f"{name}.json").open("w", encoding="utf-8") for name in names]
    for file, bracket in zip(files, "[{{", strict=True):
        file.write(bracket)
    for number, p in enumerate(made):
        comma = ",\n" if number else ""
        files[0].write(comma + json.dumps(_row(p)))
        files[1].write(f"{comma}{json.dumps(p.asin)}: {json.dumps(_facts(p))}")
        files[2].write(f"{comma}{json.dumps(p.title)}: {json.dumps(p.nouns)}")
    for file, bracket in zip(files, "]}}", strict=True):
        file.write(bracket)
        file.close()


def _row(p: Product) -> dict[str, Any]:
    return {
        "asin": p.asin, "name": p.title, "full_description": p.description,
        "small_description": p.bullets, "pricing": p.price_tag.replace(" to ", " - "),
        "product_category": p.product_category, "category": p.category, "query": p.query,
        "customization_options": {n: [{"value": v} for v in vs] for n, vs in p.options.items()},
    }  # fmt: skip


def _facts(p: Product) -> dict[str, Any]:
    return {
        "attributes": p.attributes,
        "instruction": p.instruction,
        "instruction_attributes": p.instruction_attributes,
    }


def repeated(own: list[Product], size: int) -> Iterator[Product]:
    """``size`` products with the texts of ``own``, under ids and titles of their own."""
    for number, p in zip(range(size), itertools.cycle(own), strict=False):
        yield replace(p, asin=f"R{number:09d}", title=f"{p.title} {number:x}")


def large_figures(size: int, own: list[Product]) -> dict[str, float]:
    """Compiling and opening ``size`` products, each in a fresh process; generated if ``own`` is empty."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_original(folder, repeated(own, size) if own else generate(size))
        os.environ["AGENT_ENVS_CACHE"] = str(folder / "cache")
        found = fresh(COMPILE, name, str(folder / "cache/webshop/imported"))
        found["MB of files"] = (folder / "items_shuffle.json").stat().st_size / 2**20
        disk = sum(p.stat().st_size for p in (folder / "cache/webshop/imported").iterdir())
        return {**found, "MB compiled": disk / 2**20, **fresh(OPEN, "imported")}


def main(
    data: Annotated[str | None, typer.Option(help="Folder of the original's files.")] = None,
    episodes: Annotated[Path | None, typer.Option(help="Recorded episodes (JSON).")] = None,
    seconds: Annotated[float, typer.Option(help="CPU seconds per repetition.")] = 1.0,
    large: Annotated[int, typer.Option(help="Products of the large catalogue; 0: none.")] = 0,
) -> None:
    """Measure the shop."""
    played = recorded_episodes(episodes) if episodes else expert_episodes(64)
    options = {"data_dir": data} if data else {}
    env: Any = gymnasium.make("AgentEnv/WebShop-v0", max_steps=None, **options).unwrapped
    actions = [action for *_, script in played for action in script]
    searches = sum(action.startswith("search") for action in actions) / len(actions)
    queries = [a[7:-1] for a in actions if a.startswith("search")]
    naive = NaiveShop(products(env))
    unit = "steps / CPU s"

    def all_queries(search: Callable[[str], Any]) -> Callable[[], None]:
        return lambda: [search(query) for query in queries] and None

    rows = [
        Row(f"{GROUPS}x{SIZE} groups, text", unit, rate(group_work(played, **options), seconds),
            peer=rate(naive_work(played, env), seconds)),
        Row(f"{GROUPS}x{SIZE} groups, text_rich", unit,
            rate(group_work(played, obs_mode="text_rich", **options), seconds)),
        Row(f"{len(queries)} searches", "us", duration(all_queries(env.shop.search), 3),
            peer=duration(all_queries(naive.search), 3)),
    ]  # fmt: skip
    console = Console(width=110)
    title = f"WebShop, {env.shop.catalogue.size} products, {searches:.0%} searches, {machine()}"
    console.print(table(title, "naive", rows))
    console.print(
        "shop", _short(fresh(OPEN, data or "")), "naive", _short(fresh(NAIVE, data or ""))
    )
    if large:
        figures = large_figures(large, products(env) if data else [])
        console.print(f"{large:,} products", _short(figures))


def _short(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in figures.items()}


if __name__ == "__main__":
    typer.run(main)
