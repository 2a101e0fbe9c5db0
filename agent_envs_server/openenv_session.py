"""One OpenEnv client's episode: an agent group of one replica. Blocking."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_envs.agent.group import AgentGroup
from agent_envs.agent.memory import observation_text
from agent_envs.agent.openai import data_url, wire_message
from agent_envs.agent.parsing import parser_of
from agent_envs.agent.records import Prompt, Step
from agent_envs.core.profile import Profile, Spec
from agent_envs.core.seeding import check_seed
from agent_envs.registration import env_class, make_group
from agent_envs_server import openenv_json
from agent_envs_server.counters import Counters
from agent_envs_server.openenv_http import mcp_refusal
from agent_envs_server.paths import check_paths
from agent_envs_server.refusals import Refusal
from agent_envs_server.session import CAPABILITIES
from agent_envs_server.settings import Settings

_EPISODE_ID = 255  # characters, as in OpenEnv's own model
_WINDOWS = {"render_mode"}  # an option that would open windows on the server's machine


@dataclass(frozen=True)
class Start:
    """What a reset asks for.

    Args:
        options: of the environment's constructor; another set makes another environment.
        start: of ``reset``: ``task_index`` or an explicit start.
    """

    seed: int | None = None
    episode_id: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)


class OpenEnvSession:
    """The episode of one connection.

    Attributes:
        one_thread: as the environment's profile says.
        at_work: 0 and since when a request runs (monotonic seconds).
        ended: the client said ``close``.
    """

    def __init__(self, env_id: str, settings: Settings, counters: Counters) -> None:
        self._env_id, self._settings, self._counters = env_id, settings, counters
        self._agent: AgentGroup | None = None
        self.one_thread = env_class(env_id).profile.one_thread
        self._options: Mapping[str, Any] = {}
        self._started = Start()
        self._prompt: Prompt | None = None  # what waits for an answer
        self._steps = 0  # of the session
        self.at_work: tuple[int, float] = (0, time.monotonic())
        self.ended = False
        self._requests: dict[str, Callable[[Mapping[str, Any], str], str]] = {
            "reset": self._reset,
            "step": self._step,
            "state": self._state,
            "close": self._close,
            "mcp": self._mcp,
        }

    def handle(self, frame: str) -> str:
        """The reply to a frame.

        Raises:
            Refusal: it cannot be carried out; nothing was changed.
        """
        self.at_work = (0, time.monotonic())
        message = openenv_json.glance(frame)
        if not isinstance(message, dict):
            raise Refusal(
                "VALIDATION_ERROR", f"a frame must be an object, got {type(message).__name__}"
            )
        kind = message.get("type")
        run = self._requests.get(kind) if isinstance(kind, str) else None
        if run is None:
            where = "; group messages go to /group" if kind in CAPABILITIES else ""
            raise Refusal(
                "UNKNOWN_TYPE",
                f"unknown message type {kind!r:.80}; valid: {', '.join(self._requests)}{where}",
            )
        return run(message, frame)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()
            # an episode's records go now, not when the collector comes
            self._agent = self._prompt = None

    # -- messages ------------------------------------------------------------------------------

    def _reset(self, message: Mapping[str, Any], frame: str) -> str:
        wanted = self._read_start(_data(openenv_json.read(frame), {}))  # seeds have any size
        agent = self._agent
        if agent is None or dict(wanted.options) != dict(self._options):
            agent = self._new_agent(wanted.options)
        try:
            prompts = self._begin(agent, wanted)
        except BaseException:
            if agent is not self._agent:
                agent.close()
            raise
        if agent is not self._agent:
            self.close()
            self._agent, self._options = agent, wanted.options
        self._started, self._prompt = wanted, prompts[0] if prompts else None
        result = agent.group.result(0)
        info = {**result.info, "data_source": agent.group.tasks.source}
        return self._shown(result.observation, info, agent.failures.get(0))

    def _step(self, message: Mapping[str, Any], frame: str) -> str:
        reply = openenv_json.completion(_data(message), frame)
        if self._agent is None or self._prompt is None:
            state = "has not begun" if self._agent is None else "is over"
            raise Refusal("EXECUTION_ERROR", f"the episode {state}: send reset first")
        self._steps += 1
        if self._steps > self._settings.limits.steps:
            raise Refusal(
                "LIMIT_REACHED",
                f"this session has had its {self._settings.limits.steps} steps: connect once more",
            )
        self._counters.add("replica_steps_total")
        prompt, self._prompt = self._prompt, None  # whatever happens, it is answered now
        turn = self._agent.step([reply], [prompt])
        self._prompt = turn.prompts[0] if turn.prompts else None
        (step,) = turn.steps
        return self._shown(step.next_observation, step.info, step.error, step)

    def _state(self, message: Mapping[str, Any], frame: str) -> str:
        state: dict[str, Any] = {
            "episode_id": self._started.episode_id,
            "step_count": 0,
            "env": self._env_id,
        }
        if self._agent is not None:
            group = self._agent.group
            info, terminated = group.result(0).info, bool(group.terminated[0])
            state |= {
                "step_count": info.get("steps", 0),
                "seed": group.group_seeds[0],
                "split": group.split,
                "task_id": info.get("task_id", ""),
                "terminated": terminated,
                "truncated": not terminated and self._prompt is None,
            }
        return openenv_json.write({"type": "state", "data": state})

    def _close(self, message: Mapping[str, Any], frame: str) -> str:
        self.ended = True
        return ""

    def _mcp(self, message: Mapping[str, Any], frame: str) -> str:
        return openenv_json.write({"type": "mcp", "data": mcp_refusal(message.get("data"))})

    # -- inside --------------------------------------------------------------------------------

    def _read_start(self, data: Mapping[str, Any]) -> Start:
        given = {name: value for name, value in data.items() if value is not None}
        seed, episode_id = given.pop("seed", None), given.pop("episode_id", None)
        if episode_id is not None and not (
            isinstance(episode_id, str) and len(episode_id) <= _EPISODE_ID
        ):
            raise Refusal(
                "VALIDATION_ERROR", f"episode_id must be a text of at most {_EPISODE_ID} characters"
            )
        if seed is not None:
            try:
                seed = check_seed(seed)
            except ValueError as error:
                raise Refusal("VALIDATION_ERROR", str(error)) from None
        if "index" in given:  # the name that OpenEnv's task routes use
            index = given.pop("index")
            if given.setdefault("task_index", index) != index:
                raise Refusal("VALIDATION_ERROR", "index and task_index are two names of one thing")
        if not self._settings.allow_paths:
            check_paths(self._env_id, given)
        kind = env_class(self._env_id)
        starts = ("task_index", *kind.start_options)
        options = tuple(n for n in kind.option_names() if n not in (*starts, *_WINDOWS))
        for name in given:
            if name not in starts and name not in options:
                valid = ("seed", "episode_id", *starts, *options)
                raise Refusal(
                    "VALIDATION_ERROR", f"reset takes no {name!r:.80}; valid: {', '.join(valid)}"
                )
        return Start(
            seed,
            episode_id,
            {name: given[name] for name in options if name in given},
            {name: given[name] for name in starts if name in given},
        )

    def _new_agent(self, options: Mapping[str, Any]) -> AgentGroup:
        try:
            group = make_group(self._env_id, **options)
        except (TypeError, ValueError) as error:  # OptionError among them
            raise Refusal("VALIDATION_ERROR", str(error)) from None
        except Exception as error:
            # with options of the client's it may be these: without them it may work
            code = "VALIDATION_ERROR" if options else "FACTORY_ERROR"
            raise Refusal(code, f"{self._env_id} cannot be made: {error}") from error
        return AgentGroup(group, parser=parser_of(_untagged(group.profile)))

    def _begin(self, agent: AgentGroup, wanted: Start) -> list[Prompt]:
        options = dict(wanted.start)
        if "task_index" in options:
            options["task_index"] = [options["task_index"]]
        prompts = agent.reset(None if wanted.seed is None else [wanted.seed], options)
        error = agent.group.result(0).error
        if error is not None:
            if agent is self._agent:
                self._prompt = None  # the episode before is gone, too
            # replicas report errors as text that begins with their kind
            code = "VALIDATION_ERROR" if error.startswith("OptionError:") else "EXECUTION_ERROR"
            raise Refusal(code, f"the episode cannot begin: {error}")
        return prompts

    def _shown(
        self, observation: Any, info: Mapping[str, Any], error: str | None, step: Step | None = None
    ) -> str:
        """The reply; a result that has no JSON form closes the episode (FIELD_CASES F116)."""
        try:
            return openenv_json.write(self._observation(observation, info, error, step))
        except (TypeError, ValueError, RecursionError) as problem:
            self._prompt = None
            why = f"its result cannot be sent: {problem}"
            return openenv_json.write(self._observation("", {}, why, step))

    def _observation(
        self, observation: Any, info: Mapping[str, Any], error: str | None, step: Step | None
    ) -> dict[str, Any]:
        """A reply of type ``observation``; ``step`` is None at the start."""
        terminated = step is not None and step.terminated and error is None
        truncated = error is not None or (step is not None and step.truncated)
        shown = {
            "text": observation_text(observation),
            "prompt": "" if self._prompt is None else self._prompt.text,
            "terminated": terminated,
            "truncated": truncated,
            "info": dict(info) if error is None else {**info, "error": error},
            **_pictures(observation, self._prompt),
        }
        reward = None if step is None else step.reward
        done = terminated or truncated
        return {
            "type": "observation",
            "data": {"observation": shown, "reward": reward, "done": done},
        }


def _untagged(profile: Profile) -> Spec:
    """The profile's parser, taking a text without tags as the action itself."""
    return Spec(profile.parser.name, {**profile.parser.options, "untagged": "action"})


def _pictures(observation: Any, prompt: Prompt | None) -> dict[str, Any]:
    """The observation's picture, and the chat messages of a prompt that holds some."""
    found: dict[str, Any] = {}
    image = observation.get("image") if isinstance(observation, dict) else observation
    if isinstance(image, np.ndarray):
        found["images"] = [data_url(image)]
    if prompt is not None and prompt.images:
        found["messages"] = [wire_message(message) for message in prompt.messages]
    return found


def _data(message: Mapping[str, Any], default: Any = None) -> dict[str, Any]:
    data = message.get("data", default)
    if data is None:
        data = default
    if not isinstance(data, dict):
        raise Refusal("VALIDATION_ERROR", f"data must be an object, got {type(data).__name__}")
    return data
