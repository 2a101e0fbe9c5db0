"""Any OpenEnv server as a Gymnasium environment that our groups take.

``OpenEnvGym("http://127.0.0.1:8000/envs/Sokoban-v0")`` is one environment, and::

    group = agent_envs.make_group(
        "agent_envs.adapters.openenv:OpenEnv/Client-v0", 4, 8, base_url="http://127.0.0.1:8001"
    )

a group of 32 sessions. Needs ``pip install 'agent-envs[openenv]'``, which is ``websockets`` only:
OpenEnv's own client would bring 128 packages (gradio, pandas, fastmcp, openai) and a thread with an event
loop for each session, for a protocol of four JSON messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from agent_envs.adapters.openenv_link import Server
from agent_envs.core.actions import Actions
from agent_envs.core.env import AgentEnv, Obs, Outcome
from agent_envs.core.errors import ServerError, StateNotPortable
from agent_envs.core.info import INFO_KEYS
from agent_envs.core.profile import DEFAULT_PROFILE, Profile, Spec
from agent_envs.core.tasks import TaskSet
from agent_envs.registration import register

# what the base class reports of an outcome, also of a turn that the server never counted
_COUNTED_HERE = ("steps", "is_action_valid", "won", "score")


class OpenEnvGym(AgentEnv):
    """One session of an OpenEnv server.

    ``reset`` sends the seed, and with ``options={"task_index": i}`` the index and the split, under the
    names of OpenEnv's task routes too. Observations that hold ``terminated``, ``truncated`` and ``info``
    (those of our servers) keep them; of others, ``done`` counts as terminated, and as won with a reward
    above 0. A server's refusal of an action is a counted turn; any other error raises.

    Args:
        base_url: what an OpenEnv client gets: ``/ws`` and ``/schema`` are below it.
        token: sent as ``Authorization: Bearer``.
        split: sent with each reset where given.
        reset: more members of each reset's data.
        to_action: the data of a step for an action text. Default, by the server's schema: the text in the
            one required field (as JSON where that is a number or the like), or a JSON object.
        to_observation: what the agent sees of an observation. Default: its ``text``, its only text, or
            all of it as JSON.
        timeout: seconds for one answer.

    Raises:
        ServerUnreachable: nothing answers there.
        ServerError: the server refuses this client.
        OptionError: the URL is none.
    """

    profile = Profile(
        DEFAULT_PROFILE.prompt, parser=Spec("tags", {"untagged": "action"}), portable_state=False
    )

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        split: str | None = None,
        reset: Mapping[str, Any] = MappingProxyType({}),
        to_action: Callable[[str], Mapping[str, Any] | None] | None = None,
        to_observation: Callable[[Mapping[str, Any]], Obs] | None = None,
        timeout: float = 60.0,
        max_steps: int | None = None,
        reward_scale: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        self._server = Server(base_url, token, timeout)
        tasks = ServerTasks(self._server, split or "train")
        super().__init__(
            tasks, split=split or "train", max_steps=max_steps, reward_scale=reward_scale,
            render_mode=render_mode,
        )  # fmt: skip
        self._always = {**reset, **({"split": split} if split else {})}
        self._to_action = to_action or action_maker(self._server.schema())
        self._to_observation = to_observation or read_text
        self._index: int | None = None
        self._info_there: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        self._index = (options or {}).get("task_index")
        return super().reset(seed=seed, options=options)

    def close(self) -> None:
        self._server.close()
        super().close()

    # -- the base's hooks ----------------------------------------------------------------------

    @property
    def task(self) -> str:
        return str(self._info_there.get("task", ""))

    def admissible_actions(self) -> list[str] | None:
        found = self._info_there.get("admissible_actions")
        return Actions(found) if found is not None else None

    def get_state(self, *_: Any) -> NoReturn:
        raise StateNotPortable("OpenEnv's protocol has no states")

    set_state = _snapshot = _restore = get_state  # type: ignore[assignment]

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> Obs:
        chosen = {} if self._index is None else {"task_index": self._index, "index": self._index}
        answer = self._server.reset({**self._always, "seed": seed, **chosen})
        shown = self._take(answer)
        self.tasks.source = str(self._info_there.pop("data_source", "openenv"))
        return self._to_observation(shown)

    def _act(self, action: str) -> Outcome:
        data = self._to_action(action)
        if data is None:
            return Outcome("The action must be a JSON object.", action_valid=False)
        try:
            answer = self._server.ask("step", data)
        except ServerError as error:
            if error.code != "VALIDATION_ERROR":
                raise
            return Outcome(f"The action was refused: {error}", action_valid=False)
        shown = self._take(answer)
        reward, done = float(answer.get("reward") or 0.0), bool(answer.get("done"))
        truncated = shown.get("truncated") is True
        terminated = done and not truncated
        there = self._info_there
        return Outcome(
            self._to_observation(shown),
            reward,
            terminated,
            won=there.get("won", terminated and reward > 0),
            action_valid=there.get("is_action_valid", True),
            score=there.get("score"),
            truncated=truncated,
        )

    def _start_score(self) -> float | None:
        return self._info_there.get("score")

    def _extra_info(self) -> Mapping[str, Any]:
        return {key: value for key, value in self._info_there.items() if key not in _COUNTED_HERE}

    def _take(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """The observation of an answer; its ``info`` is kept, its error raised."""
        shown = answer.get("observation")
        if not isinstance(shown, dict):
            shown = {"text": shown} if isinstance(shown, str) else {}
        info = shown.get("info")
        info = dict(info) if isinstance(info, dict) else {}
        if "error" in info:
            raise ServerError(f"{self._server.url}: {info['error']}", "EXECUTION_ERROR")
        self._info_there = {key: value for key, value in info.items() if _fits(key, value)}
        if isinstance(self._info_there.get("score"), int):
            self._info_there["score"] = float(self._info_there["score"])
        return shown


def _fits(key: str, value: Any) -> bool:
    """Has a known key its type; another server may mean something else by the name."""
    known = INFO_KEYS.get(key)
    if known is None:
        return True
    if known.type is list:
        return value is None or (
            isinstance(value, list) and all(isinstance(part, str) for part in value)
        )
    if known.type is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is known.type


def action_maker(schema: Mapping[str, Any]) -> Callable[[str], Mapping[str, Any] | None]:
    """How action texts become the data of steps, by the JSON schema of actions."""
    required, members = schema.get("required", []), schema.get("properties", {})
    if len(required) != 1:
        return _object
    name = required[0]
    if members.get(name, {}).get("type", "string") == "string":
        return lambda action: {name: action}

    def as_json(action: str) -> Mapping[str, Any]:
        try:
            return {name: json.loads(action)}
        except (ValueError, RecursionError):
            return {name: action}  # the server says what is wrong with it

    return as_json


def _object(action: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(action)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_text(observation: Mapping[str, Any]) -> str:
    """``text``, or the only text there is, or everything as JSON."""
    text = observation.get("text")
    if isinstance(text, str):
        return text
    texts = [value for value in observation.values() if isinstance(value, str)]
    if len(texts) == 1:
        return texts[0]
    return json.dumps(observation, ensure_ascii=False)


class ServerTasks(TaskSet):
    """The tasks that a server counts; endless where it does not."""

    source = "openenv"

    def __init__(self, server: Server, split: str) -> None:
        self.splits = (split,)
        self._server = server
        self._counted: dict[str, int | None] = {}

    def count(self, split: str) -> int | None:
        if split not in self._counted:
            self._counted[split] = self._server.num_tasks(split)
        return self._counted[split]

    def task_id(self, split: str, index: int) -> str:
        return f"{split}/{index}"

    def index_for_seed(self, split: str, seed: int) -> int:
        return seed  # the server chooses


register("OpenEnv/Client-v0", f"{__name__}:OpenEnvGym")
