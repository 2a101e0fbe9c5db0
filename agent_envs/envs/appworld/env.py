"""``AgentEnv/AppWorld-v0``."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, cast

from agent_envs.core.env import AgentEnv, Outcome
from agent_envs.core.errors import OptionError, one_of, positive
from agent_envs.core.profile import Profile
from agent_envs.core.tasks import TaskSet
from agent_envs.envs.appworld.api import BRANDS, Brand
from agent_envs.envs.appworld.build import make_apps
from agent_envs.envs.appworld.episode import Episode, Report, Verdict
from agent_envs.envs.appworld.execution import Executor, Limits, executor_of
from agent_envs.envs.appworld.profile import NO_CODE, PROFILE
from agent_envs.envs.appworld.real import RealEpisode, RealTasks, pool_of
from agent_envs.envs.appworld.real.episode import Settings
from agent_envs.envs.appworld.sim import SimEpisode
from agent_envs.envs.appworld.tasks import Catalogue, scenario_of, task_of

BACKENDS = ("sim", "appworld")
REWARDS = ("success", "score")
LONGEST_CODE = 100_000  # characters


class AppWorldEnv(AgentEnv):
    """Do a person's everyday tasks in apps, by writing code.

    ### Actions
    Python code. It runs in a namespace that lasts for the episode; ``apis.<app>.<api>(name=value)`` calls an
    app and returns JSON data. ``apis.api_docs`` describes all of them, ``apis.supervisor`` knows the person,
    and ``apis.supervisor.complete_task(answer=None, status="success")`` ends the task.

    ### Observations
    What the code printed, or why it failed. Longer output than ``max_output`` characters is cut in the middle
    and says so.

    ### Rewards
    When the task is completed: 1 if all its checks pass, else 0; times ``reward_scale`` (10, as in the seed
    system). ``reward="score"`` pays the share of the checks instead that doing nothing would not pass, and 0
    where something was changed that was not asked for. ``info["failed_checks"]`` names what failed.

    ### Start and end
    ``reset(seed=s)`` plays the seed's task; ``options={"task_index": i}`` the i-th of the split;
    ``options={"task_id": "..."}`` that one. ``terminated`` when the task is completed, ``truncated`` after
    ``max_interactions`` pieces of code.

    ### Arguments
    * ``split``: ``train``, ``dev``, ``test_normal``, ``test_challenge`` (kept families).
    * ``max_interactions`` (or ``max_steps``, as elsewhere in the hub): 50.
      ``max_api_calls``: 1000 in one piece of code. ``seconds``: 10 for one piece.
    * ``max_output``: 10,000 characters. ``memory_mb``: 256 for one replica's namespace.
    * ``executor``: ``process`` (default; a sandboxed process), ``monty`` (extra ``appworld-monty``; states
      are snapshots), ``inprocess`` (no protection at all, for debugging: also needs ``unsafe=True``).
    * ``brand``: ``real`` (default) or ``neutral`` names of apps.
    * ``reward``: ``success`` or ``score``. ``reward_scale``: 10. ``render_mode`` (``ansi``).
    * ``backend="appworld"``: the real benchmark, on servers that run in your own AppWorld environment:
      ``appworld_python`` (its interpreter; ``appworld_servers`` of them are started) or ``appworld_urls``;
      ``appworld_root``: the folder that holds its ``data``.

    ### Data
    Embedded: an original world of made-up people; nothing of the real benchmark is in it. The real one is
    never imported, read or shipped.

    ### Differences from the original
    * The embedded world, its people, wording, tasks and checks are our own: results are not comparable with
      the benchmark's. ``backend="appworld"`` plays the real one, scored by itself.
    * Agents' code runs in a confined process without the world, so it cannot change its checks.
    * ``reward="score"`` pays nothing for what doing nothing would pass, and 0 for collateral changes.

    ### Access
    * reads: the package; with ``backend="appworld"`` your servers read ``appworld_root``.
    * writes: nothing; the real benchmark's servers write where they write.
    * executes: the agent's Python: ``process`` in child processes with an allow-list of system calls and
      limits of time and memory (Linux; elsewhere fewer, with a warning), ``monty`` in an interpreter without
      access to the system, ``inprocess`` with your rights (needs ``unsafe=True``); with
      ``backend="appworld"`` in those servers, which ``appworld_python`` starts.
    * connects to: ``appworld_urls``, or the servers that it started on 127.0.0.1; else nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = PROFILE
    start_options: ClassVar[tuple[str, ...]] = ("task_id",)
    local_options: ClassVar[tuple[str, ...]] = (
        "unsafe", "seconds", "memory_mb", "appworld_python", "appworld_urls", "appworld_root",
        "appworld_servers",
    )  # fmt: skip

    def __init__(
        self,
        *,
        backend: str = "sim",
        executor: str = "process",
        unsafe: bool = False,
        brand: str = "real",
        reward: str = "success",
        reward_scale: float = 10.0,
        max_steps: int | None = None,
        max_interactions: int = 50,
        max_api_calls: int = 1000,
        max_output: int = 10_000,
        seconds: float = 10.0,
        memory_mb: int = 256,
        appworld_python: str | Path | None = None,
        appworld_urls: Sequence[str] = (),
        appworld_root: str | Path = ".",
        appworld_servers: int = 1,
        **options: Any,
    ) -> None:
        one_of("backend", backend, BACKENDS)
        one_of("reward", reward, REWARDS)
        one_of("brand", brand, BRANDS)
        if isinstance(appworld_urls, str):
            raise OptionError("appworld_urls must be a list of URLs, got one text")
        positive("appworld_servers", appworld_servers)
        self._max_output = positive("max_output", max_output)
        self._limits = Limits(
            seconds=_seconds(seconds), memory_mb=memory_mb,
            calls=positive("max_api_calls", max_api_calls),
        )  # fmt: skip
        root = str(Path(appworld_root).expanduser().absolute())
        tasks: TaskSet = Catalogue() if backend == "sim" else RealTasks(root)
        super().__init__(
            tasks,
            max_steps=max_interactions if max_steps is None else max_steps,
            reward_scale=reward_scale,
            **options,
        )
        self._backend, self._reward = backend, reward
        self._brand = cast("Brand", brand)
        self._apps = make_apps(self._brand)
        self._executor = shared_executor(executor, unsafe)
        if backend == "appworld":
            python = None if appworld_python is None else _interpreter(appworld_python)
            self._pool = pool_of(tuple(appworld_urls), python, root, appworld_servers)
        self._world: Episode | None = None
        self._report = Report()
        self._shown, self._lost = "", False

    @property
    def task(self) -> str:
        return "" if self._world is None else self._world.brief.instruction

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        task_id = options["task_id"]
        if not isinstance(task_id, str):
            raise OptionError(f"task_id must be a text, got {task_id!r:.80}")
        if self._backend == "sim":
            task_of(task_id, self._brand)  # raises where there is none
        return task_id

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> str:
        if self._world is not None:
            self._world.close()
        self._world = self._new_episode(task_id)
        self._report, self._lost = Report(), False
        self._shown = _greeting(self._world)
        return self._shown

    def _new_episode(self, task_id: str) -> Episode:
        if self._backend == "sim":
            return SimEpisode(
                task_of(task_id, self._brand), self._apps, self._executor, self._limits
            )
        settings = Settings(max_interactions=max(1000, self.max_steps or 0))
        return RealEpisode(self._pool, task_id, settings)

    def _act(self, action: str) -> Outcome:
        episode = self._world
        assert episode is not None  # step() lets nothing through before reset()
        why = _no_code(action)
        if why:
            self._shown, self._lost, valid = why, False, False
        else:
            shown = episode.execute(action)
            self._shown, self._lost = cut(shown.output, self._max_output), shown.lost
            valid = not shown.output.startswith("Syntax error in line")
        last = self._steps + 1 == self.max_steps  # this step is counted after it
        if not (episode.completed or last):
            return Outcome(self._shown, action_valid=valid)
        self._report = report = episode.report()
        won = report.success and episode.completed
        earned = 0.0
        if episode.completed:
            earned = float(won) if self._reward == "success" else report.score
        return Outcome(self._shown, earned, episode.completed, won, valid, report.score)

    def _extra_info(self) -> Mapping[str, Any]:
        episode = self._world
        brief = None if episode is None else episode.brief
        return {
            "failed_checks": list(self._report.failures),
            "difficulty": 0 if brief is None or brief.difficulty is None else brief.difficulty,
            "scenario": "" if brief is None else scenario_of(brief.task_id),
            "variables_lost": self._lost,
        }

    def expert_action(self) -> str | None:
        """The reference solution's next piece; None for the real benchmark, whose solutions stay closed."""
        episode = self._world
        if not isinstance(episode, SimEpisode):
            return None
        pieces = episode.task.solution
        return pieces[min(self._steps, len(pieces) - 1)]

    def close(self) -> None:
        """Let go of the namespace and the server."""
        if self._world is not None:
            self._world.close()
        super().close()

    def _snapshot(self) -> Any:
        assert self._world is not None  # get_state() lets nothing through before reset()
        verdicts = [[v.requirement, v.passed, v.idle] for v in self._report.verdicts]
        report = [verdicts, self._report.completed]
        return [self._shown, self._lost, report, list(self._world.journal())]

    def _restore(self, snapshot: Any) -> str:
        shown, lost, report, journal = snapshot
        assert self._world is not None  # _start() ran
        self._world.replay(journal)
        self._shown, self._lost = str(shown), bool(lost)
        verdicts, completed = report
        self._report = Report(
            tuple(Verdict(str(r), bool(p), bool(i)) for r, p, i in verdicts), bool(completed)
        )
        return self._shown


def shared_executor(name: str, unsafe: bool) -> Executor:
    """The process's executor of this kind: one fork server, however many replicas and threads."""
    with _opening:
        return _executor(name, unsafe)


_opening = threading.Lock()


@lru_cache(maxsize=8)
def _executor(name: str, unsafe: bool) -> Executor:
    return executor_of(name, **({"unsafe": True} if unsafe else {}))


def _interpreter(given: str | Path) -> str:
    """A command that is looked up in PATH stays one; a path becomes absolute (./python as well)."""
    text = os.path.expanduser(given)  # noqa: PTH111 - Path drops the ./
    return str(Path(text).absolute()) if os.sep in text else text


def _greeting(episode: Episode) -> str:
    brief = episode.brief
    person = brief.supervisor
    return (
        f"You work for {person['first_name']} {person['last_name']} (e-mail {person['email']}, phone "
        f"{person['phone_number']}). It is {brief.now}."
    )


def _no_code(action: str) -> str:
    """Why there is nothing to execute; empty where there is."""
    if action.startswith(NO_CODE):
        return f"No code available to execute: {action[len(NO_CODE) :].strip()}"
    if not action.strip():
        return "No code available to execute: write it between <code> and </code>"
    if len(action) > LONGEST_CODE:
        return f"No code available to execute: {len(action)} characters are too many, {LONGEST_CODE} at most"
    return ""


def cut(text: str, limit: int) -> str:
    """Beginning and end of a text, with a mark that says how much is missing between them."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    mark = f"[... {len(text) - limit} characters left out ...]"
    return f"{text[: limit - tail]}\n{mark}\n{text[len(text) - tail :]}"


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise OptionError(f"seconds must be a number above 0 and up to 3600, got {value!r}")
    return float(value)
