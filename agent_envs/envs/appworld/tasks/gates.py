"""What every embedded task has to pass: its solution scores 1, doing nothing 0, broken solutions fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agent_envs.envs.appworld.episode import Report
from agent_envs.envs.appworld.tasks.catalogue import Task
from agent_envs.envs.appworld.tasks.family import complete, login

Pieces = Sequence[str]
Play = Callable[[Task, Pieces], Report]
_WRITE = re.compile(
    r"^( *)(?:\w+ = )?apis\.(?!supervisor)\w+\.(?!login|show_|search_|download_)\w+\(.*$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken solution. ``must``: it has to fail whatever the world holds; others fail in most."""

    name: str
    pieces: Pieces
    must: bool = True


def mutants(task: Task) -> Iterator[Mutant]:
    """Broken forms of a task's reference solution."""
    *work, last = task.solution
    yield Mutant("is not completed", [*work, "pass"])
    yield Mutant("is given up", [*work, complete().replace("()", "(status='fail')")])
    alarm = "apis.phone.create_alarm(access_token=token_phone, time='03:03', label='odd')"
    yield Mutant("writes too much", [*work, login("phone"), alarm, last])
    if task.goal.answer is not None:
        wrong = re.sub(r"answer=(.*)\)$", r"answer='not ' + str(\1))", last)
        yield Mutant("answers wrongly", [*work, wrong])
        yield Mutant("does not answer", [*work, complete()])
    if any(_WRITE.search(piece) for piece in task.solution):
        idle = [_WRITE.sub(r"\1pass", piece) for piece in task.solution]
        yield Mutant("writes nothing", idle)
    if task.goal.inserted:
        twice = [piece for piece in work for _ in range(2 if _WRITE.search(piece) else 1)]
        yield Mutant("writes twice", [*twice, last], must=False)
    short = [piece.replace("range(1000)", "range(1)") for piece in task.solution]
    if short != list(task.solution):
        short = [piece.replace("page_limit=20", "page_limit=2") for piece in short]
        yield Mutant("reads one page", short, must=False)
    shifted = [re.sub(r"\b(\d{4}-\d\d-)(\d\d)\b", _next_day, piece) for piece in task.solution]
    if shifted != list(task.solution):
        yield Mutant("is a day off", shifted, must=False)


def _next_day(match: re.Match[str]) -> str:
    return f"{match[1]}{int(match[2]) % 28 + 1:02d}"


def problems(task: Task, play: Play) -> list[str]:
    """Which gates a task does not pass; empty where all is well."""
    found = []
    report = play(task, task.solution)
    if not report.success or report.score != 1.0:
        found.append(f"the solution fails: {', '.join(report.failures)}")
    for name, idle in (("nothing done", []), ("completed at once", [task.solution[-1]])):
        report = play(task, idle)
        if report.success or report.score:
            found.append(f"{name} scores {report.score}")
    for mutant in mutants(task):
        if mutant.must and play(task, mutant.pieces).success:
            found.append(f"a solution that {mutant.name} passes")
    return found


def survivors(task: Task, play: Play) -> dict[str, bool]:
    """Mutants that need not fail in every world: whether each does in this one."""
    return {m.name: not play(task, m.pieces).success for m in mutants(task) if not m.must}
