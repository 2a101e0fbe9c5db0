"""What scripted players reach: WebShop's scores, Search's recall. No figure of time.

``python -m benchmarks.panels [--tasks 200] [--webshop-data DIR] [--dense]``
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_envs.envs.search import world
from agent_envs.envs.webshop import WebShopEnv
from agent_envs.retrieval import open_retriever

Shopper = Callable[[WebShopEnv], str | None]


def shopping(act: Shopper, tasks: int, **options: Any) -> list[float]:
    """Scores of one way to shop on the first ``test`` goals."""
    env = WebShopEnv(split="test", **options)
    scores = []
    for index in range(tasks):
        _, info = env.reset(options={"task_index": index})
        while not (env.terminated or env.truncated):
            *_, info = env.step(act(env) or "")
        scores.append(info["score"])
    env.close()
    return scores


def first_hit(env: WebShopEnv) -> str:
    """Types the task, opens the first result, chooses the options that the task names, buys."""
    visit = env.visit
    if visit.page == "start":
        return f"search[{env.task}]"
    if visit.page == "results":
        return f"click[{visit.shown()[0].link}]"
    for value, name in visit.opened.clickables.items():
        if name and value in env.task and name not in visit.options:
            return f"click[{value}]"
    return "click[buy now]"


def recalls(kind: str) -> Iterator[str]:
    """Share of questions whose gold passage is among three found."""
    tasks, retriever = world.questions(), open_retriever(kind, world.documents)
    everything = [tasks[tasks.task_id(s, i)] for s in tasks.splits for i in range(tasks.count(s))]
    ways: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("gold hop as query, one-hop", "one-hop", lambda q: q.hops[0]),
        ("gold hop as query, two-hop", "two-hop", lambda q: q.hops[1]),
        ("question alone, one-hop", "one-hop", lambda q: q.text),
        ("question alone, two-hop", "two-hop", lambda q: q.text),
    )
    for name, source, query in ways:
        asked = [question for question in everything if question.data_source == source]
        found = retriever.search([query(question) for question in asked], 3)
        hits = sum(
            question.gold[-1] in [hit.document.id for hit in result.hits]
            for question, result in zip(asked, found, strict=True)
        )
        yield f"{kind}, {name}: {hits / len(asked):.2f} of {len(asked)}"


def main(
    tasks: Annotated[int, typer.Option(help="WebShop goals.")] = 200,
    webshop_data: Annotated[
        Path | None, typer.Option(help="Folder of the original's files.")
    ] = None,
    dense: Annotated[bool, typer.Option(help="The dense retriever too.")] = False,
) -> None:
    worlds: dict[str, dict[str, Any]] = {"embedded": {}, "embedded, human": {"goals": "human"}}
    if webshop_data is not None:
        worlds["original"] = {"data_dir": str(webshop_data)}
    for name, options in worlds.items():
        for player, act in (("expert", WebShopEnv.expert_action), ("first hit", first_hit)):
            scores = shopping(act, tasks, **options)
            perfect = sum(score == 1 for score in scores) / tasks
            shown = f"{statistics.mean(scores):.3f}, {perfect:.1%}"
            print(f"webshop, {name}, {player}: {shown}", flush=True)
    for kind in ("bm25", "dense") if dense else ("bm25",):
        for line in recalls(kind):
            print(line, flush=True)


if __name__ == "__main__":
    typer.run(main)
