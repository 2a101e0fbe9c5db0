"""A policy over any OpenAI-compatible chat endpoint: the seed system's prompt agent."""

from __future__ import annotations

import base64
import http.client
import json
import os
import struct
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from agent_envs.agent.records import Completion, Message, Prompt
from agent_envs.core.errors import OptionError
from agent_envs.core.http import direct_opener

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_MAX_WAIT = 60.0  # seconds; also caps a server's Retry-After
_NETWORK_ERRORS = (OSError, http.client.HTTPException)  # URLError, timeouts and TLS are OSErrors
_OPENER = direct_opener(proxies=True)


@dataclass(slots=True)
class Usage:
    """Token and call counts since the policy was made, as the server reports them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    retries: int = 0
    failures: int = 0


class OpenAIChatPolicy:
    """Asks a chat model for each action; calls run side by side, answers are used as they come.

    Args:
        model: name of the model; default ``$OPENAI_MODEL``.
        base_url: such as ``http://127.0.0.1:8000/v1``; default ``$OPENAI_BASE_URL``.
        api_key: default ``$OPENAI_API_KEY``; without one no authorisation header is sent.
        concurrency: calls at the same time.
        retries: further tries after an overloaded server or a broken connection.
        backoff: seconds before the first retry; doubled each time, a server's Retry-After wins.
        timeout: seconds for one try.
        **request: further members of the request, such as ``temperature``, ``max_tokens``, ``stop``.

    A call that fails for good closes its own replica only. Sends prompts (and so whatever
    observations hold) to ``base_url`` and nowhere else.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        concurrency: int = 16,
        retries: int = 4,
        backoff: float = 0.5,
        timeout: float = 120.0,
        **request: Any,
    ) -> None:
        self._model = model or os.environ.get("OPENAI_MODEL")
        url = base_url or os.environ.get("OPENAI_BASE_URL")
        if not self._model:
            raise OptionError("which model? Pass model=... or set OPENAI_MODEL")
        if not url or not url.startswith(("http://", "https://")) or not _has_host(url):
            shown = "one with '@'" if url and "@" in url else repr(url)  # may hold a password
            raise OptionError(
                f"base_url must be an http(s) address, got {shown}: pass it or set OPENAI_BASE_URL"
            )
        if "@" in urlsplit(url).netloc:
            raise OptionError(
                "base_url must hold no user name or password; a key goes into api_key"
            )
        if concurrency < 1 or retries < 0:
            raise OptionError("concurrency must be at least 1 and retries at least 0")
        self._url = url.rstrip("/") + "/chat/completions"
        self._key = key = api_key or os.environ.get("OPENAI_API_KEY") or ""
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise OptionError(
                "the API key holds characters that no header may hold (a line's end?)"
            )
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._retries, self._backoff, self._timeout = retries, backoff, timeout
        self._request = request
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="openai-chat")
        self._running: dict[Future[Completion], Prompt] = {}
        self._lock = threading.Lock()
        self.usage = Usage()

    def act(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """All answers, in order; waits for the slowest."""
        return list(self._pool.map(self._answer, prompts))

    def submit(self, prompts: Sequence[Prompt]) -> None:
        for prompt in prompts:
            self._running[self._pool.submit(self._answer, prompt)] = prompt

    def collect(self) -> list[tuple[Prompt, Completion]]:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        return [(self._running.pop(future), future.result()) for future in done]

    def cancel(self) -> None:
        """Forget all submitted prompts; calls that run already end unheard."""
        for future in self._running:
            future.cancel()
        self._running.clear()

    def close(self) -> None:
        """Drop calls that have not begun; wait for none."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._running.clear()

    # -- one call, on a thread of the pool -----------------------------------------------------

    def _answer(self, prompt: Prompt) -> Completion:
        try:
            body = json.dumps(
                {
                    "model": self._model,
                    "messages": [wire_message(m) for m in prompt.messages],
                    **self._request,
                }
            ).encode()
        except (TypeError, ValueError) as error:
            return self._failed(f"the prompt cannot be sent: {error}")
        for attempt in range(self._retries + 1):
            try:
                return self._read(self._post(body))
            except urllib.error.HTTPError as error:
                reason = f"HTTP {error.code}: {self._excerpt(error)}"
                if error.code not in _RETRIED:
                    return self._failed(reason)
                delay = _retry_after(error.headers)
            except _NETWORK_ERRORS as error:
                reason, delay = f"{type(error).__name__}: {error}", None
            except Exception as error:  # whatever a server may send, it closes one replica only
                return self._failed(f"unreadable reply: {type(error).__name__}: {error}")
            if attempt < self._retries:
                with self._lock:
                    self.usage.retries += 1
                time.sleep(min(self._backoff * 2**attempt if delay is None else delay, _MAX_WAIT))
        return self._failed(f"{reason} (after {self._retries + 1} tries)")

    def _post(self, body: bytes) -> Any:
        request = urllib.request.Request(self._url, body, self._headers)  # noqa: S310 - checked
        deadline = time.monotonic() + self._timeout
        pieces = []
        with _OPENER.open(request, timeout=self._timeout) as reply:
            while piece := reply.read1(65536):
                pieces.append(piece)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no complete reply within {self._timeout:g} s")
        return json.loads(b"".join(pieces))

    def _read(self, reply: Any) -> Completion:
        choice = reply["choices"][0]
        text = choice["message"]["content"]
        counts = reply.get("usage") or {}
        with self._lock:
            self.usage.calls += 1
            self.usage.prompt_tokens += int(counts.get("prompt_tokens") or 0)
            self.usage.completion_tokens += int(counts.get("completion_tokens") or 0)
        if text is not None and not isinstance(text, str):
            raise TypeError("message.content is no text")
        return Completion(text or "", finish_reason=choice.get("finish_reason"))

    def _failed(self, reason: str) -> Completion:
        with self._lock:
            self.usage.failures += 1
        return Completion("", error=self._without_key(f"{self._url}: {reason}"))

    def _excerpt(self, error: urllib.error.HTTPError) -> str:
        """What the server says of an error; some repeat the key in it."""
        try:
            text = error.read(4096).decode("utf-8", "replace").strip()
        except _NETWORK_ERRORS:
            text = ""
        return self._without_key(text)[:300] or str(error.reason)

    def _without_key(self, text: str) -> str:
        """Errors reach logs and trajectory files, which the key must not."""
        return text.replace(self._key, "***") if self._key else text


def _has_host(url: str) -> bool:
    """Whether an address can be called at all; each call would be retried in vain otherwise."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:  # no port, no IPv6 address
        return False


def _retry_after(headers: Any) -> float | None:
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None


def wire_message(message: Message) -> dict[str, Any]:
    """A chat message in OpenAI's form: images as PNG data URLs in parts of type ``image_url``."""
    content = message["content"]
    if not isinstance(content, str):
        content = [_wire_part(part) for part in content]
    return {"role": message["role"], "content": content}


def _wire_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    return {"type": "image_url", "image_url": {"url": data_url(part["image"])}}


def data_url(image: Any) -> str:
    """An image, uint8 (height, width, 3) or PIL, as the data URL of a PNG."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(np.asarray(image))).decode()}"


def encode_png(image: np.ndarray) -> bytes:
    """A PNG of an RGB image, uint8 of shape (height, width, 3); needs no imaging library."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"expected uint8 (H, W, 3), got {image.dtype} {image.shape}")
    height, width, _ = image.shape
    rows = np.zeros((height, 1 + width * 3), np.uint8)  # each row begins with filter type 0
    rows[:, 1:] = image.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )
