"""Agents' code: what it sees, what stops it, and what it cannot reach.

Every escape test asserts a defined observation and that another session is unharmed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_envs.core.errors import MissingExtra, OptionError
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.execution import (
    EXECUTORS,
    Execution,
    ExecutorError,
    Limits,
    executor_of,
)
from agent_envs.envs.appworld.execution.frames import FrameError, Lines, pack, unpack
from agent_envs.envs.appworld.execution.process import ProcessExecutor
from tests.conftest import ROOT

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's limits are Linux's")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the process executor needs fork")
NOW = "2023-05-18T12:00:00"
APPS = {"phone": ["login", "show_contacts"], "notes": ["show_note"]}
LOST = "Execution failed. The Python process of this code is gone, and all variables are lost. "
# the runner's own modules, reached past the guarded import, as an attacker would
MODULES = (
    "modules = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close']"
    "[0].__init__.__globals__['sys'].modules\n"
    "os, sys = modules['os'], modules['sys']\n"
    "load = modules['builtins'].__import__\n"
)


def answer(app: str, api: str, arguments: dict) -> object:
    """An app that echoes; the API ``fail`` refuses."""
    if api == "fail":
        raise ApiError(409, "The thing with id 3 does not exist.")
    return {"app": app, "api": api, **arguments}


def namespace(executor, *, seed: int = 7, now: str = NOW, **limits):
    return executor.session(
        now=now, seed=seed, apps=APPS, limits=Limits(**{"seconds": 5, **limits})
    )


@pytest.fixture(scope="module")
def executor():
    made = executor_of("process")
    yield made
    made.close()


@pytest.fixture
def session(executor):
    made = namespace(executor)
    yield made
    made.close()


class Pair:
    """A session for an attack, and a bystander that holds a variable."""

    def __init__(self, executor, **limits) -> None:
        self.one, self.other = namespace(executor, **limits), namespace(executor)
        assert self.other.run("kept = 41", answer).output == "Execution successful."

    def attack(self, code: str) -> Execution:
        self.one.run("mine = 1", answer)
        outcome = self.one.run(MODULES + code, answer)
        assert self.other.run("print(kept + 1)", answer).output == "42"
        # the attacked session goes on too: with its variables, or without where it lost them
        left = self.one.run("print(mine)", answer).output
        assert ("NameError" in left) if outcome.lost else (left == "1")
        return outcome

    def close(self) -> None:
        self.one.close()
        self.other.close()


@pytest.fixture
def pair(executor):
    made = Pair(executor, seconds=1)
    yield made
    made.close()


# --- observations


@pytest.mark.parametrize(
    ("code", "output", "failed"),
    [
        ("x = 1", "Execution successful.", False),
        ("1 + 1", "Execution successful.", False),
        ("print('a'); print('b')", "a\nb", False),
        ("print([1, 'é'])", '[1, "\\u00e9"]', False),
        ("print({'a': None})", '{"a": null}', False),
        ("print([1], [2])", "[1] [2]", False),
        ("print({1, })", "{1}", False),
        ("print([{1}])", "[{1}]", False),
        ("", "No code available to execute.", True),
        (" \n\t", "No code available to execute.", True),
        ("# only a comment", "Execution successful.", False),
        ("f(", "Syntax error in line:\nf(\nMessage: '(' was never closed", True),
        ("a = 1\nb = = 2", "Syntax error in line:\nb = = 2\nMessage: invalid syntax", True),
        (
            "def f():\n    return 1 / 0\n\nf()",
            'Execution failed. Traceback:\n  File "<python-input>", line 4, in <module>\n    f()\n'
            '  File "<python-input>", line 2, in f\n    return 1 / 0\nZeroDivisionError: division by zero',
            True,
        ),
        (
            "apis.notes.fail(id=3)",
            'Execution failed. Traceback:\n  File "<python-input>", line 1, in <module>\n'
            "    apis.notes.fail(id=3)\nException: Response status code is 409:\n"
            '{"message":"The thing with id 3 does not exist."}',
            True,
        ),
        ("raise SystemExit(3)", None, True),
        ("print(object())", "<object object at 0x...>", False),
        ("print(hex(255))", "0xff", False),
        ("print(dir(apis), dir(apis.phone))", "['notes', 'phone'] ['login', 'show_contacts']", False),
        ("print(apis.phone.login(username='a'))", '{"app": "phone", "api": "login", "username": "a"}', False),
        ("print('\\ud800')", "\\ud800", False),
    ],
)  # fmt: skip
def test_what_an_execution_shows(session, code, output, failed):
    got = session.run(code, answer)
    assert got.failed is failed
    assert not got.lost
    if output is not None:
        assert got.output == output


def test_long_lists_and_dicts_are_indented(session):
    value = {"key": "v" * 100}
    assert session.run(f"print({value!r})", answer).output == json.dumps(value, indent=1)


def test_what_was_printed_before_a_failure_is_kept(session):
    output = session.run("print('before')\nraise ValueError('x')", answer).output
    assert output.startswith("before\nExecution failed. Traceback:\n")
    assert output.endswith("\nValueError: x")


def test_variables_stay_and_tracebacks_show_the_lines_of_their_own_execution(session):
    session.run("x = 5\ndef f():\n    raise KeyError(x)", answer)
    got = session.run("# a\n# b\n\nf()", answer)
    assert "line 4, in <module>\n    f()\n" in got.output
    assert "line 3, in f\n    raise KeyError(x)\nKeyError: 5" in got.output


def test_apis_comes_back_whatever_the_code_made_of_the_name(session):
    session.run("apis = 3", answer)
    assert '"api": "login"' in session.run("print(apis.phone.login())", answer).output


def test_positional_arguments_are_refused_with_the_right_form(session):
    got = session.run("apis.phone.login('a')", answer)
    assert got.calls == 0
    assert "keyword arguments only, as in apis.phone.login(name=value)" in got.output


@pytest.mark.parametrize("value", ["{1, 2}", "float('nan')", "object()", "b'x'"])
def test_arguments_that_are_no_json_are_refused_before_the_host(session, value):
    got = session.run(f"apis.phone.login(a={value})", answer)
    assert "arguments of phone.login must be JSON values" in got.output
    assert (got.calls, got.lost) == (0, False)


def test_unknown_names_are_the_hosts_to_judge(session):
    asked = []
    session.run("apis.nothing.at_all(a=1)", lambda *request: asked.append(request))
    assert asked == [("nothing", "at_all", {"a": 1})]


def test_calls_run_in_the_callers_thread_and_are_counted(session):
    threads = []

    def call(app, api, arguments):
        threads.append(threading.current_thread())
        return {}

    got = session.run("for _ in range(3):\n    apis.phone.login()", call)
    assert threads == [threading.current_thread()] * 3
    assert got.calls == 3


def test_too_many_calls(executor):
    session = namespace(executor, calls=5)
    got = session.run("n = 0\nwhile True:\n    apis.phone.login()\n    n += 1", answer)
    assert got.output == (
        "Number of requests exceeded the limit of 5. "
        "This potentially means that you have an infinite loop in your code."
    )
    assert (got.failed, got.lost, got.calls) == (True, False, 5)
    assert session.run("print(n); apis.phone.login()", answer).output == "5"
    session.close()


@pytest.mark.parametrize(
    "name", ["os", "sys", "subprocess", "socket", "ctypes", "numpy", "agent_envs.envs", "threading"]
)
def test_other_modules_are_refused_by_name(session, name):
    output = session.run(f"import {name}", answer).output
    assert output.endswith(f"Exception: Usage of the following module is not allowed: {name}.")


def test_modules_that_only_compute_are_there(session):
    from agent_envs.envs.appworld.execution.interpreter import MODULES as names

    code = "\n".join(f"import {name}" for name in sorted(names) if name != "__future__")
    assert session.run(code, answer).output == "Execution successful."
    code = (
        "import re, datetime, collections.abc, urllib.parse, statistics, decimal\n"
        "print(datetime.datetime.strptime('2023-01-31', '%Y-%m-%d') + datetime.timedelta(days=1))\n"
        "print(urllib.parse.quote('a b'), statistics.mean([1, 2]), decimal.Decimal('0.1') * 3)\n"
        "print('é'.encode('latin-1'), hashlib.sha256(b'').hexdigest()[:8], re.sub('a', 'b', 'aa'))"
    )
    got = session.run(code, answer)
    assert got.output == "2023-02-01 00:00:00\na%20b 1.5 0.3\nb'\\xe9' e3b0c442 bb"


def test_input_is_refused(session):
    """F070"""
    assert "input(..) is not allowed" in session.run("input('name?')", answer).output


def test_the_clock_is_the_worlds_and_moves_with_calls(session):
    code = (
        "import time, datetime\napis.phone.login()\n"
        "print(datetime.datetime.now(), datetime.date.today(), time.time(), time.strftime('%H:%M:%S'))\n"
        "time.sleep(3600)\nprint(datetime.datetime.now())"
    )
    begun = time.monotonic()
    output = session.run(code, answer).output
    assert output == "2023-05-18 12:00:01 2023-05-18 1684411201.0 12:00:01\n2023-05-18 13:00:01"
    assert time.monotonic() - begun < 60


HOSTILE_TO_DETERMINISM = (
    "import random, uuid, secrets\n"
    "print({'b', 'a', 'c', 'd'}, hash('x'), random.random(), random.Random().random(), uuid.uuid4(), "
    "secrets.token_hex(4), random.SystemRandom().random(), uuid.uuid1())"
)


def test_chance_is_the_seeds_in_every_session_and_fork_server(executor, session):
    first = session.run(HOSTILE_TO_DETERMINISM, answer)
    assert not first.failed
    assert namespace(executor).run(HOSTILE_TO_DETERMINISM, answer) == first
    with_other_seed = namespace(executor, seed=8).run(HOSTILE_TO_DETERMINISM, answer)
    assert with_other_seed != first
    second = executor_of("process")
    assert namespace(second).run(HOSTILE_TO_DETERMINISM, answer) == first
    second.close()


def test_output_is_cut_with_a_mark(executor):
    session = namespace(executor, output=1000)
    got = session.run("print('é' * 200_000)", answer)
    assert (
        got.output == "é" * 500 + "\n[The output was cut here: only its first 1000 bytes are kept.]"
    )
    assert session.run("print('a' * 999)", answer).output == "a" * 999
    assert len(session.run("raise ValueError('x' * 50_000_000)", answer).output) < 1200
    session.close()


def test_output_may_be_large_and_all_of_it_escaped(executor):
    session = namespace(executor, output=3_000_000)
    assert session.run("print('\\U0001f600' * 750_000)", answer).output == "\U0001f600" * 750_000
    session.close()


def test_a_time_limit_keeps_the_variables(executor):
    session = namespace(executor, seconds=0.5)
    session.run("x = 1", answer)
    begun = time.monotonic()
    got = session.run("print('begun')\nwhile True:\n    pass", answer)
    assert got == Execution("begun\nExecution timed out after 0.5 seconds.", True, False, 0)
    assert time.monotonic() - begun < 1.4
    assert session.run("print(x)", answer).output == "1"
    session.close()


def test_time_that_the_host_takes_is_not_the_codes(executor):
    session = namespace(executor, seconds=0.5)

    def slow(app, api, arguments):
        time.sleep(0.4)

    got = session.run("for _ in range(4):\n    apis.phone.login()\nprint('done')", slow)
    assert got.output == "done"
    session.close()


def test_an_interruption_during_a_call_leaves_the_channel_whole(executor):
    session = namespace(executor, seconds=0.3)
    for _ in range(5):
        got = session.run("while True:\n    apis.phone.login(a='x' * 100_000)", answer)
        assert "timed out" in got.output or "Number of requests" in got.output
        assert not got.lost
        assert session.run("print(apis.phone.login(b=1)['b'])", answer).output == "1"
    session.close()


def test_an_error_of_the_host_comes_out_and_the_session_starts_anew(session):
    def broken(app, api, arguments):
        raise RuntimeError("a bug of the world")

    with pytest.raises(RuntimeError, match="a bug of the world"):
        session.run("x = 1\napis.phone.login()", broken)
    assert "NameError" in session.run("print(x)", answer).output


def test_too_much_code_is_refused(session):
    got = session.run("#" * 1_000_001, answer)
    assert got.output.startswith("Execution failed. The code has 1000001 characters")


# --- escapes


REFUSED = [
    ("open('/etc/passwd')", "PermissionError"),
    ("os.open('/dev/null', 0)", "PermissionError"),
    ("os.listdir('/proc')", "PermissionError"),
    ("open('/proc/self/environ')", "PermissionError"),
    ("open('/proc/1/mem', 'rb')", "PermissionError"),
    ("os.stat('/')", "PermissionError"),
    ("os.mkdir('/tmp/agent')", "PermissionError"),
    ("os.rename('/tmp', '/tmp2')", "PermissionError"),
    ("os.chmod('/tmp', 0)", "PermissionError"),
    ("os.unlink('/etc/hosts')", "PermissionError"),
    ("os.symlink('a', '/tmp/b')", "PermissionError"),
    ("os.chdir('/')", "PermissionError"),
    ("load('socket').socket()", "PermissionError"),
    ("load('socket').socketpair()", "PermissionError"),
    ("load('socket').fromfd(3, 1, 1)", "PermissionError"),
    ("os.pipe()", "PermissionError"),
    ("os.dup(3)", "PermissionError"),
    ("os.memfd_create('x')", "PermissionError"),
    ("os.fork()", "PermissionError"),
    ("while True:\n    os.fork()", "PermissionError"),
    ("os.posix_spawn('/bin/sh', ['sh'], {})", "PermissionError"),
    ("os.execv('/bin/sh', ['sh'])", "PermissionError"),
    ("os.system('id') and 1 / 0", "ZeroDivisionError"),
    ("load('_thread').start_new_thread(print, (1,))", "RuntimeError: can't start new thread"),
    ("os.kill(os.getppid(), 9)", "PermissionError"),
    ("os.kill(-1, 9)", "PermissionError"),
    ("os.killpg(0, 9)", "PermissionError"),
    ("os.setuid(0)", "PermissionError"),
    ("os.nice(5)", "PermissionError"),
    ("os.sched_setaffinity(0, {0})", "PermissionError"),
    ("modules['resource'].setrlimit(modules['resource'].RLIMIT_AS, (-1, -1))", "not allowed to raise"),
    ("load('agent_envs.envs.appworld.env')", "Error"),
    ("load('agent_envs.envs.appworld.tasks')", "Error"),
    ("load('multiprocessing')", "Error"),
    ("load('mmap').mmap(-1, 4096, prot=4 | 2 | 1)", "Error"),
    ("del modules['builtins'].print, modules['builtins'].input\ninput()", "is not allowed"),
    ("x = [0]\nwhile True:\n    x *= 2", "MemoryError"),
    ("x = bytearray(300 << 20)", "MemoryError"),
    ("x = '%1000000000d' % 1", "MemoryError"),
]  # fmt: skip


@linux
@pytest.mark.parametrize(("code", "error"), REFUSED, ids=[code[:40] for code, _ in REFUSED])
def test_what_the_kernel_refuses_ends_in_an_exception(pair, code, error):
    got = pair.attack(code)
    if got.lost:  # broke its own runner
        assert got.output.startswith(LOST)
    else:
        assert got.failed
        assert got.output.startswith("Execution failed. Traceback:\n")
        assert error in got.output.splitlines()[-1]


ESCAPES_BY_CTYPES = """
c = load('ctypes').CDLL(None, use_errno=True)
print(c.open(b'/etc/passwd', 0), c.socket(2, 1, 0), c.fork(), c.kill(1, 0), c.ptrace(16, 1, 0, 0),
      c.mkdir(b'/tmp/agent', 511), c.rename(b'/tmp', b'/x'), c.setuid(0), c.mount(0, 0, 0, 0, 0),
      c.unshare(0x10000000), c.prctl(4, 0), c.personality(0), c.memfd_create(b'x', 0), c.eventfd(0, 0))
"""


@linux
def test_ctypes_reaches_the_kernel_and_is_refused_there(pair):
    got = pair.attack(ESCAPES_BY_CTYPES)
    assert got.output == " ".join(["-1"] * 14)


DEADLY = [
    ("os._exit(0)", LOST),
    ("load('ctypes').string_at(0)", LOST),
    ("os.abort()", LOST),
    ("os.close(3)", LOST),
    ("vars(modules['builtins']).clear()", LOST),
    ("vars(modules['agent_envs.envs.appworld.execution.child']).clear()", LOST),
    ("os.write(3, b'x\\n')", LOST + "It was ended since the code wrote into the channel"),
    ("os.write(3, b'[' * 100_000 + b'\\n')", LOST + "It was ended since the code wrote into the channel"),
    ("os.write(3, b'{\"token\":\"0\",\"output\":\"won\",\"failed\":false}\\n')", LOST),
    ("os.write(3, b'x' * 20_000_000)", LOST + "It was ended since the code wrote into the channel"),
    ("s = load('signal')\ns.signal(2, s.SIG_IGN)\nwhile True:\n    pass", "Execution timed out after 1 seconds. The code did not stop"),
    ("def f():\n  while True:\n    try:\n      for i in range(10**9): i + 1\n    except BaseException: pass\nf()", "Execution timed out"),
    ("s = load('signal')\ns.pthread_sigmask(0, range(1, 65))\nwhile True:\n    pass", "Execution timed out"),
    ("while True:\n  try:\n    os.read(3, 1)\n  except BaseException: pass", "Execution timed out"),
]  # fmt: skip


@linux
@pytest.mark.parametrize(("code", "start"), DEADLY, ids=[code[:40] for code, _ in DEADLY])
def test_what_ends_the_process_says_that_variables_are_lost(pair, code, start):
    got = pair.attack(code)
    assert got.output.startswith(start)
    assert "all variables are lost" in got.output
    assert (got.failed, got.lost) == (True, True)


FORGED = """
token = None
frame = sys._getframe()
while frame:
    self = frame.f_locals.get('self')
    token = getattr(self, '_token', token)
    frame = frame.f_back
"""


@linux
def test_a_forged_outcome_spoils_its_own_session_and_nothing_else(pair):
    """With the token, found by walking frames: it is the code's own output, and its process then ends."""
    code = "os.write(3, (load('json').dumps({'token': token, 'output': 'won', 'failed': False}) + '\\n').encode())"
    pair.one.run("mine = 1", answer)
    got = pair.one.run(MODULES + FORGED + code, answer)
    assert got.output == "won"
    time.sleep(0.2)
    later = pair.one.run("print(mine)", answer)  # the real outcome lies in the channel: a fault
    assert (later.lost, later.output.startswith(LOST)) == (True, True)
    assert "NameError" in pair.one.run("print(mine)", answer).output
    assert pair.other.run("print(kept)", answer).output == "41"


@linux
def test_a_forged_call_is_a_call_like_any_other(pair):
    asked = []
    code = (
        "os.write(3, (load('json').dumps({'token': token, 'call': ['a', 'b', {}]}) + '\\n').encode())\n"
        "print(os.read(3, 100))"
    )

    def call(*request):
        asked.append(request)
        return 5

    got = pair.one.run(MODULES + FORGED + code, call)
    assert got.output == "b'{\"value\":5}\\n'"
    assert asked == [("a", "b", {})]
    assert got.calls == 1


@linux
@pytest.mark.parametrize("call", ["[]", "['a', 'b']", "['a', 1, {}]", "'x'", "None", "{}"])
def test_malformed_calls_end_the_session(pair, call):
    code = f"os.write(3, (load('json').dumps({{'token': token, 'call': {call}}}) + '\\n').encode())\nwhile True: pass"
    got = pair.attack(FORGED + code)
    assert (got.lost, got.output.startswith(LOST)) == (True, True)


@linux
def test_frames_lead_to_nothing_of_the_host(pair):
    code = (
        "frame, seen = sys._getframe(), []\n"
        "while frame:\n    seen += [frame.f_code.co_name, *frame.f_locals]\n    frame = frame.f_back\n"
        "print(sorted(n for n in modules if 'appworld' in n), 'world' in str(seen), 'overlay' in str(seen))\n"
        "print(os.environ.keys() - {'PYTHONHASHSEED', 'PYTHONUTF8', 'LC_ALL', 'TZ', 'LC_CTYPE', 'LD_LIBRARY_PATH', 'PYTHONHOME'})"
    )
    got = pair.attack(code)
    names, environment = got.output.splitlines()
    assert names == (
        "['agent_envs.envs.appworld', 'agent_envs.envs.appworld.execution', "
        + ", ".join(f"'agent_envs.envs.appworld.execution.{n}'" for n in ("child", "clock", "frames", "interpreter", "seccomp", "zygote"))
        + "] False False"
    )  # fmt: skip
    assert environment == "set()"


@linux
def test_no_descriptor_but_the_channel_is_open(pair):
    code = "def is_open(n):\n  try: os.lseek(n, 0, 1)\n  except OSError as e: return e.errno != 9\n  return True\nprint([n for n in range(5000) if is_open(n)])"
    assert pair.attack(code).output == "[0, 1, 2, 3]"


@linux
def test_prints_of_200_mb_stay_small(executor):
    """F072"""
    session = namespace(executor, memory_mb=600)
    got = session.run("print('x' * 200_000_000)", answer)
    assert not got.failed
    assert len(got.output) < 210_000
    assert "[The output was cut here" in got.output
    session.close()


@linux
def test_bombs_of_many_sessions_stay_within_the_groups_budget():
    executor = executor_of("process", group_mb=600)
    bystander = namespace(executor)
    bystander.run("kept = 41", answer)
    sessions = [namespace(executor, seconds=20) for _ in range(8)]
    outcomes: list[Execution] = []
    highest, done = 0, threading.Event()

    def bomb(session) -> None:
        code = "x = bytearray(180 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint(len(x))"
        outcomes.append(session.run(code, answer))
        outcomes.append(session.run("print(len(x))", answer))

    def measure() -> None:
        nonlocal highest
        while not done.wait(0.05):
            total = 0
            for pid in executor.server().pids().values():
                try:
                    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                except OSError:
                    continue
                total += sum(int(x.split()[1]) for x in rollup.splitlines() if x.startswith("Pss:"))
            highest = max(highest, total // 1024)

    threads = [threading.Thread(target=bomb, args=(s,)) for s in sessions]
    meter = threading.Thread(target=measure)
    meter.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    done.set()
    meter.join()
    ended = [o for o in outcomes if o.lost]
    assert ended
    assert all("all sessions together had too much memory" in o.output for o in ended)
    assert bystander.run("print(kept)", answer).output == "41"
    assert highest <= 600 + 180  # what one bomb can add between two looks on a busy machine
    executor.close()


# --- the fork server


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(*pids: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while any(map(alive, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@linux
def test_a_killed_process_is_a_defined_outcome_and_a_fresh_namespace(executor, session):
    before = set(executor.server().pids().values())
    session.run("x = 1", answer)
    (pid,) = set(executor.server().pids().values()) - before
    os.kill(pid, signal.SIGKILL)
    got = session.run("print(x)", answer)
    assert (got.failed, got.lost, got.output.startswith(LOST)) == (True, True, True)
    assert "NameError" in session.run("print(x)", answer).output


@linux
def test_a_killed_fork_server_is_replaced_and_its_sessions_end():
    executor = executor_of("process")
    one, two = namespace(executor), namespace(executor)
    one.run("x = 1", answer)
    two.run("x = 1", answer)
    server = executor.server()
    pids = server.pids().values()
    os.kill(server.pid, signal.SIGKILL)
    assert gone(*pids)
    for session in (one, two):
        got = session.run("print(x)", answer)
        assert (got.lost, got.output.startswith(LOST)) == (True, True)
        assert session.run("x = 2\nprint(x)", answer).output == "2"
    executor.close()


@linux
@pytest.mark.parametrize(
    "end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit()", "time.sleep(0)"]
)
def test_everything_ends_with_the_host(run_python, end):
    code = (
        "import os, sys, time\n"
        "from agent_envs.envs.appworld.execution import executor_of, Limits\n"
        f"e = executor_of('process'); s = e.session(now={NOW!r}, seed=0, apps={{}}, limits=Limits())\n"
        "s.run('x = 1', None)\n"
        "if os.fork() == 0:\n    time.sleep(3); os._exit(0)\n"  # holds copies of what the host had open
        "print(e.server().pid, *e.server().pids().values(), flush=True)\n"
        f"{end}"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    pids = [int(word) for word in process.stdout.readline().split()]
    process.stdout.close()
    process.wait(60)
    assert len(pids) == 2
    assert gone(*pids, seconds=2.5)


def _in_worker(executor, session, pipe) -> None:
    own = namespace(executor)
    pipe.send([
        session.run("print(x)", answer),
        session.run("print(x)", answer),
        own.run("print(6 * 7)", answer),
        executor.server().pid,
    ])  # fmt: skip
    executor.close()


@linux
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_worker_starts_its_own_and_leaves_the_hosts_alone():
    executor = executor_of("process")
    session = namespace(executor)
    session.run("x = 1", answer)
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        here, there = context.Pipe()
        worker = context.Process(target=_in_worker, args=(executor, session, there))
        worker.start()
        inherited, after, own, pid = here.recv()
        worker.join(30)
        assert (inherited.lost, inherited.output.startswith(LOST)) == (True, True)
        assert "forked from" in inherited.output
        assert "NameError" in after.output
        assert own.output == "42"
        assert pid != executor.server().pid
        assert gone(pid)
        assert session.run("print(x)", answer).output == "1"
    executor.close()


def test_many_threads_at_once(executor):
    wrong = []

    def work(number: int) -> None:
        session = namespace(executor, seconds=60)
        total = 0
        for step in range(5):
            got = session.run(
                f"total = globals().get('total', 0) + apis.a.b(n={number * step})['n']\nprint(total)",
                answer,
            )
            total += number * step
            if got.output != str(total):
                wrong.append(got)
        session.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []


def test_a_session_used_by_many_threads_runs_one_after_the_other(session):
    session.run("n = 0", answer)
    threads = [
        threading.Thread(target=session.run, args=("m = n\napis.a.b()\nn = m + 1", answer))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert session.run("print(n)", answer).output == "10"


@linux
def test_nothing_is_left_open():
    def counted() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = counted()
    executor = executor_of("process")
    for _ in range(3):
        sessions = [namespace(executor) for _ in range(4)]
        for session in sessions:
            session.run(MODULES + "os._exit(0)", answer)
            session.run("x = 1", answer)
        assert len(executor.server().pids()) == 4
        for session in sessions:
            session.close()
            session.close()
        assert executor.server().pids() == {}
        server = Path(f"/proc/{executor.server().pid}/fd")
        assert len(list(server.iterdir())) <= 6
    executor.close()
    assert counted() == before


def test_a_missing_limit_is_named_in_a_warning():
    executor = ProcessExecutor()
    executor._machine = "pdp11"
    with pytest.warns(
        RuntimeWarning, match=r"system calls \(files, network.*no list of system calls for pdp11"
    ):
        assert namespace(executor).run("print(1)", answer).output == "1"
    executor.close()


@linux
def test_here_no_limit_is_missing():
    executor = ProcessExecutor()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        executor.server()
    executor.close()


@linux
def test_without_the_filter_the_other_limits_still_hold():
    executor = ProcessExecutor()
    executor._machine = "pdp11"
    with pytest.warns(RuntimeWarning):
        executor.server()
    session = namespace(executor, seconds=1)
    assert "Too many open files" in session.run("open('/etc/passwd')", answer).output
    # a process that code has started does not outlive the session
    got = session.run(
        MODULES + "pid = os.fork()\nif not pid:\n    while True: pass\nprint(pid)", answer
    )
    pid = int(got.output)
    assert alive(pid)
    session.close()
    assert gone(pid)
    executor.close()


def test_a_fork_server_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ExecutorError, match="/bin/false did not start"):
        executor_of("process").server()


@linux
def test_the_same_bytes_as_root_and_not():
    """Needs root and a Python outside its home."""
    python = Path("/usr/bin/python3")
    packages = next((p for p in sys.path if p.endswith("site-packages")), "")
    version = f"import sys; assert sys.version_info[:2] == {sys.version_info[:2]}; import gymnasium"
    environment = {"PYTHONPATH": f"{ROOT}:{packages}", "PATH": "/usr/bin:/bin"}
    if os.getuid() != 0:
        pytest.skip("needs root, to run as another user too")
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    try:
        subprocess.run(
            [python, "-c", version],
            check=True,
            env=environment,
            cwd="/",
            capture_output=True,
            **nobody,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"needs {python} of this version that nobody can use, with gymnasium in reach")
    code = (
        "import json, warnings; warnings.simplefilter('error')\n"
        "from agent_envs.envs.appworld.execution import executor_of, Limits\n"
        f"e = executor_of('process'); s = e.session(now={NOW!r}, seed=3, apps={{}}, limits=Limits(seconds=1))\n"
        f"codes = {[HOSTILE_TO_DETERMINISM, *[MODULES + c for c, _ in REFUSED], *[MODULES + c for c, _ in DEADLY[:10]]]!r}\n"
        "print(json.dumps([s.run(c, None).output for c in codes])); e.close()"
    )
    outputs = [
        subprocess.run([python, "-c", code], check=True, env=environment, cwd="/", capture_output=True, text=True, **who).stdout
        for who in ({}, nobody)
    ]  # fmt: skip
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])) == 1 + len(REFUSED) + 10


# --- hostile strings, options, frames


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.one_of(
    st.text(),
    st.text("()[]{}'\"\\\n\t :=.,x01#@\x00\ud800é", max_size=60),
    st.lists(st.sampled_from(["x", "=", "apis.a.b(", ")", "for i in", ":", "\n", "    ", "def f(", "lambda", "'", "print("])).map("".join),
))  # fmt: skip
def test_any_string_ends_in_an_observation(executor, code):
    session = _shared_session(executor)
    got = session.run(code, answer)
    assert got.output
    got.output.encode("utf-8")
    assert session.run("print(6 * 7)", answer).output in ("42", LOST) or "TypeError" in got.output


_SHARED: dict[int, object] = {}


def _shared_session(executor):
    return _SHARED.setdefault(id(executor), namespace(executor, seconds=2))


@pytest.mark.parametrize(
    "code",
    [
        "-" * 100_000 + "1",
        "(" * 10_000,
        "a" * 900_000,
        "x = " + "[" * 90 + "]" * 90,
        "\n" * 900_000 + "1/0",
        "0x" + "f" * 100_000,
        "1" * 5000,
    ],
)
def test_extreme_code_ends_in_an_observation(pair, code):
    got = pair.one.run(code, answer)
    assert got.output
    assert pair.other.run("print(kept)", answer).output == "41"


@pytest.mark.parametrize(
    "wrong",
    [{"seconds": 0}, {"seconds": float("nan")}, {"memory_mb": 0}, {"output": -1}, {"calls": 1.5}],
)
def test_wrong_limits_are_refused(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Limits(**wrong)


def test_executors_by_name():
    with pytest.raises(
        OptionError, match="unknown executor 'docker'; valid: process, monty, inprocess"
    ):
        executor_of("docker")
    with pytest.raises(OptionError, match="group_gb"):
        executor_of("process", group_gb=2)
    with pytest.raises(OptionError, match="group_mb must be a positive integer"):
        executor_of("process", group_mb=0)
    assert "process" in EXECUTORS


@given(
    st.lists(st.dictionaries(st.text(), st.none() | st.integers() | st.text())), st.integers(1, 50)
)
@settings(deadline=None)
def test_frames_come_out_as_they_went_in_however_they_are_cut(messages, size):
    lines, stream, got = Lines(), b"".join(map(pack, messages)), []
    for begin in range(0, len(stream), size):
        lines.feed(stream[begin : begin + size])
        while (line := lines.next()) is not None:
            got.append(unpack(line))
    assert got == messages
    assert not lines.pending


@pytest.mark.parametrize(
    "line", [b"", b"x", b"[1]", b'{"a": NaN}', b"\xff", b"[" * 100_000, b'{"a": 1e999999']
)
def test_frames_that_are_none_are_refused(line):
    with pytest.raises(FrameError):
        unpack(line)


def test_frames_have_a_limit():
    lines = Lines(10)
    lines.feed(b"x" * 11)
    with pytest.raises(FrameError, match="longer than 10 bytes"):
        lines.next()


# --- the other executors


def test_inprocess_needs_its_flag():
    with pytest.raises(OptionError, match="pass unsafe=True, else use 'process'"):
        executor_of("inprocess")
    with pytest.raises(OptionError, match="unsafe=True"):
        executor_of("inprocess", unsafe=1)


def test_monty_says_how_to_install_it(monkeypatch):
    name = "agent_envs.envs.appworld.execution.monty"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agent-envs\[appworld-monty\]'"):
        executor_of("monty")


@pytest.fixture(scope="module", params=["process", "monty", "inprocess"])
def every(request):
    if request.param == "monty":
        pytest.importorskip("pydantic_monty", reason="needs the extra appworld-monty")
    made = executor_of(request.param, **({"unsafe": True} if request.param == "inprocess" else {}))
    yield made
    made.close()


COMMON = [
    ("x = 2", "Execution successful."),
    ("print(x); print('a', 'b', sep='-')", "2\na-b"),
    ("print([1, None])", "[1, null]"),
    ("print({'k': 'v' * 100})", json.dumps({"k": "v" * 100}, indent=1)),
    ("print([{1}])", "[{1}]"),
    ("", "No code available to execute."),
    ("print(apis.phone.login(username='a'))", '{"app": "phone", "api": "login", "username": "a"}'),
    ("print(apis.other.thing(a=[1, {'b': None}])['a'])", '[1, {"b": null}]'),
    ("p = apis.phone", "Execution successful."),
    ("print(p.login(b=1)['b'])", "1"),
    (
        "y = 3\napis.notes.fail(id=3)",
        'Execution failed. Traceback:\n  File "<python-input>", line 2, in <module>\n'
        "    apis.notes.fail(id=3)\nException: Response status code is 409:\n"
        '{"message":"The thing with id 3 does not exist."}',
    ),
    ("print(y)", "3"),
    ("try:\n    apis.notes.fail()\nexcept Exception as error:\n    print('caught', error)", "caught Response status code is 409:\n{\"message\":\"The thing with id 3 does not exist.\"}"),
    ("def f():\n    return 1 / 0", "Execution successful."),
    (
        "\nf()",
        'Execution failed. Traceback:\n  File "<python-input>", line 2, in <module>\n    f()\n'
        '  File "<python-input>", line 2, in f\n    return 1 / 0\nZeroDivisionError: division by zero',
    ),
    ("print('before')\nraise ValueError('x')", 'before\nExecution failed. Traceback:\n  File "<python-input>", line 2, in <module>\n    raise ValueError(\'x\')\nValueError: x'),
    ("import json, re, datetime, math, random, collections, itertools\nprint(json.loads('[1]'))", "[1]"),
]  # fmt: skip


def test_all_executors_show_the_same(every):
    session = namespace(every)
    for code, output in COMMON:
        got = session.run(code, answer)
        assert got.output == output, code
        assert not got.lost
    session.close()


def test_all_executors_bound_calls_output_and_code(every):
    session = namespace(every, calls=5, output=100)
    got = session.run("while True:\n    apis.phone.login()", answer)
    assert got.output.startswith("Number of requests exceeded the limit of 5.")
    assert (got.failed, got.calls) == (True, 5)
    cut = session.run("print('é' * 1000)", answer).output
    assert cut == "é" * 50 + "\n[The output was cut here: only its first 100 bytes are kept.]"
    assert session.run("#" * 1_000_001, answer).failed
    refused = session.run("apis.phone.login('a')", answer)
    assert (refused.calls, refused.failed) == (0, True)
    assert session.run("apis.phone.login(a={1})", answer).calls == 0
    session.close()


def test_all_executors_hand_on_the_hosts_errors(every):
    session = namespace(every)

    def broken(app, api, arguments):
        raise RuntimeError("a bug of the world")

    with pytest.raises(RuntimeError, match="a bug of the world"):
        session.run("apis.phone.login()", broken)
    assert session.run("print(1)", answer).output == "1"
    session.close()


def test_answers_are_copies(every):
    rows = {"list": [1]}
    session = namespace(every)
    session.run("a = apis.notes.show()\na['list'].append(2)", lambda *_: rows)
    assert rows == {"list": [1]}
    session.close()


@pytest.fixture(scope="module")
def monty():
    pytest.importorskip("pydantic_monty", reason="needs the extra appworld-monty")
    made = executor_of("monty", workers=2)
    yield made
    made.close()


def test_monty_snapshots_travel(monty):
    session = namespace(monty)
    assert session.snapshot() == b""
    session.run("x = [1]\nphone = apis.phone\ndef f():\n    return len(x)", answer)
    kept = session.snapshot()
    session.run("x.append(2)", answer)
    other = executor_of("monty", workers=1)
    twin = namespace(other)
    twin.restore(kept)
    assert twin.run("print(f(), phone.login(a=1)['a'])", answer).output == "1 1"
    assert session.run("print(f())", answer).output == "2"
    other.close()


def test_monty_serves_more_sessions_than_workers(monty):
    sessions = [namespace(monty) for _ in range(20)]
    for number, session in enumerate(sessions):
        session.run(f"n = {number}", answer)
    assert [s.run("print(n)", answer).output for s in sessions] == [str(n) for n in range(20)]


def test_monty_after_a_time_limit_has_the_variables_of_before(monty):
    session = namespace(monty, seconds=0.3)
    session.run("x = 1", answer)
    got = session.run("x = 2\nwhile True:\n    pass", answer)
    assert (
        got.output
        == "Execution timed out after 0.3 seconds.\nVariables are as they were before this code."
    )
    assert (got.failed, got.lost) == (True, False)
    assert session.run("print(x)", answer).output == "1"


@pytest.mark.parametrize("code", [
    "open('/etc/passwd')", "import os\nos.listdir('/')", "import socket", "import subprocess", "import ctypes",
    "().__class__.__base__.__subclasses__()", "__import__('os')", "input('x')",
    "x = 'a' * (400 << 20)", "l = [0]\nwhile True:\n    l = l + l", "def f(n): return f(n + 1)\nf(0)",
    "f(", "x\x00", "\ud800", "(" * 5000, "-" * 50_000 + "1", "apis._App", "p = apis.phone.login",
])  # fmt: skip
def test_monty_ends_attacks_in_an_observation(monty, code):
    session, other = namespace(monty, seconds=2), namespace(monty)
    session.run("mine = 1", answer)
    other.run("kept = 41", answer)
    got = session.run(code, answer)
    assert got.failed
    assert got.output.startswith(
        ("Execution failed.", "Syntax error in line:", "Execution timed out")
    )
    assert other.run("print(kept + 1)", answer).output == "42"
    assert session.run("print(mine)", answer).output == "1"


def test_monty_clock_and_chance(monty):
    code = "import datetime, random\nprint(datetime.datetime.now(), random.random())"
    outputs = {namespace(monty).run(code, answer).output for _ in range(3)}
    assert len(outputs) == 1
    assert outputs.pop().startswith("2023-05-18 12:00:00 ")


@linux
@pytest.mark.parametrize("used", [True, False])
def test_monty_in_a_forked_process(run_python, used):
    """Its runtime does not survive a fork: a defined error then, not a hang; unused, it starts there."""
    pytest.importorskip("pydantic_monty", reason="needs the extra appworld-monty")
    code = (
        "import os\n"
        "from agent_envs.envs.appworld.execution import executor_of, ExecutorError, Limits\n"
        f"e = executor_of('monty'); s = e.session(now={NOW!r}, seed=0, apps={{}}, limits=Limits())\n"
        f"{used} and s.run('x = 1', None)\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    try: print(s.run('print(6 * 7)', None).output)\n"
        "    except ExecutorError as error: print(error)\n"
        "    e.close()\n"
        "else:\n    os.waitpid(pid, 0)\n    print(s.run('print(1)', None).output)\n    e.close()"
    )
    theirs, ours = run_python(code, timeout=60).stdout.splitlines()
    assert theirs.startswith("monty was used before this process was forked" if used else "42")
    assert ours == "1"
