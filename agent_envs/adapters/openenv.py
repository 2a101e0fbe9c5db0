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
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import urlsplit, urlunsplit

from agent_envs.core.actions import Actions
from agent_envs.core.env import AgentEnv, Obs, Outcome
from agent_envs.core.errors import (
    MissingExtra,
    OptionError,
    ServerError,
    ServerUnreachable,
    StateNotPortable,
)
from agent_envs.core.info import INFO_KEYS
from agent_envs.core.profile import DEFAULT_PROFILE, Profile, Spec
from agent_envs.core.tasks import TaskSet
from agent_envs.registration import register

try:
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
    from websockets.sync.client import ClientConnection, connect
except ImportError as _error:
    raise MissingExtra("agent_envs.adapters.openenv", "openenv") from _error

_MAX_MESSAGE = 100 << 20  # bytes, as OpenEnv's client takes
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_ANSWERS = {"reset": "observation", "step": "observation", "state": "state"}
_NOT_OFFERED = (404, 405, 501)
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


class Server:
    """An OpenEnv server: HTTP questions, and one session that opens when it is first needed."""

    def __init__(self, base_url: str, token: str | None, timeout: float) -> None:
        parts = urlsplit(base_url) if isinstance(base_url, str) else None
        if parts is None or parts.scheme not in _SCHEMES or not parts.hostname:
            raise OptionError(
                f"an OpenEnv server's URL looks like http://127.0.0.1:8000/envs/Sokoban-v0, got {base_url!r}"
            )
        if not timeout > 0:
            raise OptionError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.url, self._timeout = base_url.rstrip("/"), timeout
        self._parts = parts._replace(path=parts.path.rstrip("/"))
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._socket: ClientConnection | None = None

    # -- over HTTP -----------------------------------------------------------------------------

    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of actions; empty where the server has none."""
        found = self._http("/schema")
        action = found.get("action") if isinstance(found, dict) else None
        return action if isinstance(action, dict) else {}

    def num_tasks(self, split: str) -> int | None:
        """How many tasks a split has; None where the server does not say."""
        names = self._http("/list_environments")
        if not isinstance(names, list) or not names:
            return None
        found = self._http(f"/{names[0]}/num_tasks", {"split": split})
        number = found.get("num_tasks") if isinstance(found, dict) else None
        return number if type(number) is int else None

    def _http(self, path: str, body: Any = None) -> Any:
        """The JSON value at ``path``; None where it is not offered."""
        scheme = self._parts.scheme.replace("ws", "http")
        url = urlunsplit((scheme, self._parts.netloc, self._parts.path + path, "", ""))
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - checked
        try:
            with _OPENER.open(request, timeout=self._timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code in _NOT_OFFERED:
                return None
            raise self._refused(error.code, error.read(300)) from error
        except (OSError, ValueError) as error:
            raise self._unreachable(error) from error

    # -- over the socket -----------------------------------------------------------------------

    def reset(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode; over a new connection where the last one was closed meanwhile."""
        if self._socket is not None:
            try:
                return self.ask("reset", data)
            except ServerUnreachable:
                pass
        self._connect()
        return self.ask("reset", data)

    def ask(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """The answer's ``data``.

        Raises:
            ServerUnreachable: the connection is lost, and the episode with it.
            ServerError: an error frame; ``code`` is OpenEnv's.
        """
        if self._socket is None:
            raise ServerUnreachable(f"{self.url}: the session is closed; reset begins another")
        try:
            with suppress(ConnectionClosed):  # a server that is full says so before it closes
                self._socket.send(json.dumps({"type": kind, "data": dict(data)}))
            answer = json.loads(self._socket.recv(timeout=self._timeout))
        except TimeoutError:
            self._drop()
            raise ServerUnreachable(f"{self.url}: no answer within {self._timeout:g} s") from None
        except (OSError, WebSocketException, ValueError) as error:
            self._drop()
            raise ServerUnreachable(f"{self.url}: connection lost ({error})") from error
        found = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            self._drop()
            raise ServerError(f"{self.url}: the answer is no OpenEnv frame")
        if answer.get("type") == "error":
            raise ServerError(f"{self.url}: {found.get('message')}", str(found.get("code")))
        if answer.get("type") != _ANSWERS[kind]:
            self._drop()
            raise ServerError(f"{self.url}: answered {kind} by {answer.get('type')!r:.80}")
        return found

    def _connect(self) -> None:
        scheme = _SCHEMES[self._parts.scheme]
        address = urlunsplit((scheme, self._parts.netloc, self._parts.path + "/ws", "", ""))
        try:
            link = connect(
                address, additional_headers=self._headers, compression=None, proxy=None,
                open_timeout=self._timeout, close_timeout=1, max_size=_MAX_MESSAGE,
            )  # fmt: skip
            self._socket = link.__enter__()  # close() and _drop() are its end
        except InvalidStatus as error:
            raise self._refused(error.response.status_code, error.response.body or b"") from error
        except (OSError, WebSocketException, EOFError) as error:
            raise self._unreachable(error) from error

    def _refused(self, status: int, body: bytes | bytearray) -> ServerError:
        why = bytes(body).decode("utf-8", "replace")
        return ServerError(f"{self.url} refuses this client ({status}): {why:.300}", str(status))

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        port = f" --port {self._parts.port}" if self._parts.port else ""
        return ServerUnreachable(
            f"no OpenEnv server answers at {self.url} ({type(error).__name__}: {error}); start one there: "
            f"agent-envs serve{port}, or the environment's own server"
        )

    def _drop(self) -> None:
        link, self._socket = self._socket, None
        if link is not None:
            with suppress(OSError, WebSocketException):
                link.close_socket()

    def close(self) -> None:
        """End the session in good order."""
        link, self._socket = self._socket, None
        if link is not None:
            with suppress(OSError, WebSocketException):
                link.send('{"type": "close"}')
                link.close()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the token goes to ``base_url`` and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))

register("OpenEnv/Client-v0", f"{__name__}:OpenEnvGym")
