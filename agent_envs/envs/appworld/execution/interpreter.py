"""Runs an agent's code in a namespace that stays, and words the observation.

Standard library only: the fork server, a bare interpreter, loads this module too. Nothing here keeps
code from doing harm; the kernel's limits (``child.py``) do. What this module refuses (modules,
``input``) it refuses so that an agent reads a clear sentence.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import linecache
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, TracebackType
from typing import Any

Ask = Callable[[str, str, dict[str, Any]], Any]

MODULES = frozenset(
    "__future__ abc array base64 binascii bisect calendar cmath collections colorsys contextlib copy csv "
    "dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html io "
    "itertools json keyword locale math numbers operator pprint random re reprlib secrets shlex "
    "statistics string struct textwrap time traceback types typing unicodedata urllib uuid warnings "
    "weakref zlib zoneinfo".split()
)
"""What agents may import: the parts of the standard library that only compute."""

SHOWN = "<python-input>"
_PRINT = builtins.print
_JSON_WIDTH = 100  # a list or dict whose JSON is longer is shown indented


class Stop(BaseException):
    """Ends an execution with a sentence of its own; not an Exception, so that agents rarely catch it."""


class _Printed(io.TextIOBase):
    """Collects what is printed and keeps the first ``limit`` characters."""

    def __init__(self, limit: int) -> None:
        self._parts: list[str] = []
        self._room = limit + 1  # one more shows whoever cuts that something was left out

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._room > 0:
            self._parts.append(text[: self._room])
            self._room -= len(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def text(self) -> str:
        return "".join(self._parts)


class Api:
    """``apis.<app>.<api>``: called with keyword arguments only."""

    __slots__ = ("_app", "_ask", "_name")

    def __init__(self, ask: Ask, app: str, name: str) -> None:
        self._ask, self._app, self._name = ask, app, name

    def __call__(self, *positional: Any, **arguments: Any) -> Any:
        if positional:
            raise TypeError(
                f"apis.{self._app}.{self._name}() takes keyword arguments only, as in "
                f"apis.{self._app}.{self._name}(name=value); {len(positional)} positional given"
            )
        return self._ask(self._app, self._name, arguments)

    def __repr__(self) -> str:
        return f"<API {self._app}.{self._name}>"


class App:
    """``apis.<app>``. Any name is an API here: whether it exists, the host says when it is called."""

    def __init__(self, ask: Ask, name: str, apis: Sequence[str]) -> None:
        self._ask, self._name, self._apis = ask, name, tuple(apis)

    def __getattr__(self, name: str) -> Api:
        if name.startswith("__"):
            raise AttributeError(name)
        return Api(self._ask, self._name, name)

    def __dir__(self) -> list[str]:
        return list(self._apis)

    def __repr__(self) -> str:
        return f"<app {self._name}>"


class Apis:
    """``apis``: the apps by name."""

    def __init__(self, ask: Ask, apps: Mapping[str, Sequence[str]]) -> None:
        self._ask, self._apps = ask, dict(apps)

    def __getattr__(self, name: str) -> App:
        if name.startswith("__"):
            raise AttributeError(name)
        return App(self._ask, name, self._apps.get(name, ()))

    def __dir__(self) -> list[str]:
        return list(self._apps)

    def __repr__(self) -> str:
        return f"<apis of {', '.join(self._apps)}>"


def api_failure(status: int, message: str) -> Exception:
    """What an agent's code sees of an API's refusal."""
    body = json.dumps({"message": message}, separators=(",", ":"), ensure_ascii=False)
    return Exception(f"Response status code is {status}:\n{body}")


def calls_exceeded(limit: int) -> str:
    """The sentence that ends an execution with too many API calls."""
    return (
        f"Number of requests exceeded the limit of {limit}. "
        "This potentially means that you have an infinite loop in your code."
    )


def timed_out(seconds: float) -> str:
    """The sentence that ends an execution that takes too long."""
    return f"Execution timed out after {seconds:g} seconds."


def _print(*values: Any, **options: Any) -> None:
    if len(values) == 1 and not options and type(values[0]) in (list, dict):
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(values[0])
            long = len(text) >= _JSON_WIDTH
            values = (json.dumps(values[0], indent=1) if long else text,)
    _PRINT(*values, **options)  # the agent's own print


def _no_input(*_: Any) -> str:
    raise Exception("input(..) is not allowed: nobody answers here. Put the value into the code.")


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002 - the built-in's names
    locals: Mapping[str, Any] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    if level or name.partition(".")[0] not in MODULES:
        raise Exception(f"Usage of the following module is not allowed: {name or '.' * level}.")
    return builtins.__import__(name, globals, locals, fromlist or (), level)


def _builtins() -> dict[str, Any]:
    own = {name: value for name, value in vars(builtins).items() if name != "_"}
    return own | {"print": _print, "input": _no_input, "__import__": _import}


class Interpreter:
    """One namespace.

    Args:
        ask: sends an API call to the host and returns its answer.
        apps: names for ``dir(apis)`` and ``dir(apis.<app>)``.
        output: characters kept of what one execution prints.
    """

    def __init__(self, ask: Ask, apps: Mapping[str, Sequence[str]], output: int) -> None:
        self._output = output
        self._runs = 0
        self.running = False
        """An interruption now hits the agent's code and nothing of ours."""
        self._apis = Apis(ask, apps)
        self._namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": _builtins()}

    def run(self, code: str) -> tuple[str, bool]:
        """Execute ``code``; returns what it printed or how it failed, and whether it failed."""
        printed = _Printed(self._output)
        failure = ""
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                failure = self._attempt(code)
        except Stop as stop:  # came while the failure was being worded
            failure = str(stop)
        finally:
            self.running = False
        text = printed.text()
        if failure:
            failure = failure[: self._output + 1]
            return (f"{text.rstrip()}\n{failure}" if text.strip() else failure), True
        return text.removesuffix("\n") or "Execution successful.", False

    def _attempt(self, code: str) -> str:
        """The sentence of the failure; empty where there was none."""
        self._runs += 1
        # a name of its own: a function of an earlier execution must show its own lines
        name = f"<python-input-{self._runs}>"
        try:
            compiled = compile(code, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
            return _syntax_failure(error, code)
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        self._namespace["apis"] = self._apis  # whatever an earlier execution made of the name
        try:
            self.running = True
            self._execute(compiled)
            return ""
        except Stop as stop:
            return str(stop)
        except BaseException as error:  # whatever the agent raised is its observation
            return _run_failure(error)

    def _execute(self, compiled: CodeType) -> None:
        # the purpose of this module; what the code may do, child.py's limits decide
        builtins.exec(compiled, self._namespace)  # noqa: S102


def _syntax_failure(error: BaseException, code: str) -> str:
    if isinstance(error, SyntaxError):
        number = error.lineno or 1
        lines = code.splitlines()
        line = (error.text or (lines[number - 1] if 0 < number <= len(lines) else "")).strip("\n")
        return f"Syntax error in line:\n{line}\nMessage: {error.msg}"
    message = str(error) or type(error).__name__
    return f"Syntax error in line:\n{code[:200].splitlines()[0]}\nMessage: {message}"


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str, str]]:
    for frame, number in traceback.walk_tb(trace):
        name = frame.f_code.co_filename
        if name.startswith("<python-input"):
            yield SHOWN, number, frame.f_code.co_name, linecache.getline(name, number).strip()


def _run_failure(error: BaseException) -> str:
    try:
        lines = traceback.StackSummary.from_list(list(_frames(error.__traceback__))).format()
        lines += traceback.format_exception_only(type(error), error)
    except Stop:
        raise
    except BaseException as second:  # an exception whose own text fails
        lines = [f"{type(error).__name__}: its text failed with {type(second).__name__}\n"]
    return f"Execution failed. Traceback:\n{''.join(lines)}".rstrip()
