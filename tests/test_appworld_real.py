"""The client of the real benchmark against a stub that speaks its protocol."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="the stub of AppWorld's server needs the extra server")

from agent_envs.core.errors import DataError, OptionError, ServerError, ServerUnreachable
from agent_envs.envs.appworld.real import Pool, RealEpisode, RealTasks, pool_of
from agent_envs.envs.appworld.real.episode import Settings
from agent_envs.envs.appworld.real.server import OwnServer, Server

SOON = Settings(timeout_seconds=5)


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """A folder with lists of tasks."""
    folder = tmp_path_factory.mktemp("appworld_root")
    lists = folder / "data" / "datasets"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("toy_1\ntoy_2\ntoy_3\n")
    (lists / "dev.txt").write_text("toy_4\n")
    return folder


@pytest.fixture(scope="session")
def python(tmp_path_factory) -> str:
    """An interpreter whose environment has an ``appworld`` (the stub)."""
    folder = tmp_path_factory.mktemp("appworld_env")
    info = folder / "appworld-0.1.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: appworld\nVersion: 0.1.3\n")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nappworld = tests.appworld_stub:main\n"
    )
    wrapper = folder / "python"
    repository = Path(__file__).resolve().parent.parent
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:{repository} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


@pytest.fixture
def pool(python, root):
    found = Pool(lambda: [OwnServer(python, str(root)) for _ in range(2)])
    yield found
    found.close()


def test_tasks_are_those_that_the_data_lists(root):
    tasks = RealTasks(str(root))
    assert tasks.splits == ("train", "dev")
    assert tasks.task_id("train", 1) == "toy_2"


def test_an_episode_from_brief_to_report(pool):
    episode = RealEpisode(pool, "toy_3", SOON)
    assert episode.brief.instruction == "Bring x to 3."
    assert episode.brief.supervisor["first_name"] == "Ada"
    assert episode.report().score == 0.0
    assert episode.execute("x += 3").output == "Execution successful."
    report = episode.report()
    assert (report.score, report.success, report.failures) == (0.5, False, ("done was said",))
    assert not episode.completed
    episode.execute("done")
    assert episode.completed
    assert episode.report().success
    assert episode.execute("nonsense").failed


def test_collateral_damage_scores_nothing(pool):
    episode = RealEpisode(pool, "toy_3", SOON)
    episode.execute("x += 100")
    episode.execute("done")
    assert episode.report().score == 0.0


def test_more_episodes_than_servers(pool):
    """A world that was put aside is made again by its code; no sleep, no deadlock."""
    episodes = [RealEpisode(pool, f"toy_{n}", SOON) for n in range(1, 6)]
    for turn in range(3):
        for number, episode in enumerate(episodes):
            episode.execute(f"x += {number}")
            assert episode.execute("print(x)").output == f"{number * (turn + 1)}\n"


def test_threads_share_the_servers(pool):
    wrong: list[object] = []

    def play(number: int) -> None:
        try:
            episode = RealEpisode(pool, f"toy_{number}", SOON)
            for turn in range(1, 6):
                episode.execute(f"x += {number}")
                if (shown := episode.execute("print(x)").output) != f"{turn * number}\n":
                    wrong.append(shown)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=play, args=(n,)) for n in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_a_server_that_dies_is_started_again_and_the_world_replayed(pool):
    episode = RealEpisode(pool, "toy_2", SOON)
    episode.execute("x += 2")
    (server,) = (s for s in pool._holders if pool._holders[s] is episode)
    server.process.kill()
    server.process.wait()
    assert episode.execute("print(x)").output == "2\n"
    with pool.lent(episode) as (_, fresh):
        assert not fresh


def test_code_that_kills_the_server_twice_is_an_error_and_the_server_comes_back(pool):
    episode = RealEpisode(pool, "toy_2", SOON)
    with pytest.raises(ServerError):
        episode.execute("die")
    other = RealEpisode(pool, "toy_1", SOON)
    assert other.execute("print(x)").output == "0\n"


def test_a_failure_inside_is_an_error_and_leaves_the_server_usable(pool):
    episode = RealEpisode(pool, "toy_2", SOON)
    with pytest.raises(ServerError, match="HTTP 500"):
        episode.execute("fail")
    assert RealEpisode(pool, "toy_1", SOON).execute("print(x)").output == "0\n"


def test_a_hanging_server_is_given_up_by_our_own_clock(pool, monkeypatch):
    """F070"""
    monkeypatch.setattr("agent_envs.envs.appworld.real.episode._GRACE", -4.0)
    episode = RealEpisode(pool, "toy_2", SOON)
    begun = time.monotonic()
    with pytest.raises(ServerUnreachable, match="the code made it hang") as caught:
        episode.execute("hang")
    assert "appworld_python" not in str(caught.value)  # nothing that its user could do
    assert time.monotonic() - begun < 30
    assert RealEpisode(pool, "toy_1", SOON).execute("print(x)").output == "0\n"


def test_a_server_that_hangs_in_the_second_try_is_started_again(pool, monkeypatch):
    """Its next user would wait until the time is up, and fail without a fault of its own."""
    episode = RealEpisode(pool, "toy_2", SOON)
    monkeypatch.setattr("agent_envs.envs.appworld.real.episode._GRACE", -4.0)
    (server,) = (s for s in pool._holders if pool._holders[s] is episode)
    with pytest.raises(ServerUnreachable):
        episode.execute("fail, then hang")
    monkeypatch.undo()
    assert server.ask("/", None, 3.0)


def test_a_server_that_is_just_ending_counts_as_dead(python, root):
    """Its connections end a little before its process does."""
    server = OwnServer(python, str(root))
    try:
        server.ready()
        server.process.kill()
        server.process.wait()
        server.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.1)"])
        assert server.recover()
    finally:
        server.stop()


@pytest.mark.parametrize(
    "answer",
    [
        None, {}, {"supervisor": "Ada", "instruction": "", "datetime": ""},
        {"supervisor": {"first_name": "Ada"}, "instruction": "", "datetime": ""},
    ],
)  # fmt: skip
def test_an_opening_of_another_form_is_a_server_error(pool, monkeypatch, answer):
    monkeypatch.setattr(Server, "ask", lambda self, path, body, seconds: answer)
    with pytest.raises(ServerError, match="does not answer as AppWorld"):
        RealEpisode(pool, "toy_1", SOON)


@pytest.mark.parametrize(
    "answer", [None, "report", {}, {"passes": None, "failures": []}, {"passes": ["x"], "failures": []}]
)  # fmt: skip
def test_an_evaluation_of_another_form_is_a_server_error(pool, monkeypatch, answer):
    """It must not read as a task without checks."""
    episode = RealEpisode(pool, "toy_1", SOON)
    monkeypatch.setattr(Server, "ask", lambda self, path, body, seconds: answer)
    with pytest.raises(ServerError, match="does not answer as AppWorld"):
        episode.report()


def test_journals_replay(pool):
    first = RealEpisode(pool, "toy_2", SOON)
    first.execute("x += 2")
    second = RealEpisode(pool, "toy_2", SOON)
    second.replay(first.journal())
    assert second.execute("print(x)").output == "2\n"
    with pytest.raises(ValueError, match="code only"):
        second.replay([1])


def test_own_servers_listen_on_this_machine_only(pool, caplog):
    """F068: AppWorld 0.1.3 binds all interfaces and takes no host."""
    RealEpisode(pool, "toy_1", SOON)
    for server in pool._holders:
        port = int(server.url.rpartition(":")[2])
        lines = Path("/proc/net/tcp").read_text().splitlines() if sys.platform == "linux" else []
        mine = [line.split() for line in lines if f":{port:04X} " in line and " 0A " in line]
        assert all(words[1].startswith("0100007F") for words in mine)
    assert not caplog.records


def test_a_given_server_that_everybody_reaches_is_warned_of(caplog):
    with socket.create_server(("0.0.0.0", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        threading.Thread(target=serve, daemon=True).start()
        Server(f"http://127.0.0.1:{listener.getsockname()[1]}").ready(5)
    if sys.platform == "linux":
        assert "all interfaces" in caplog.text


def test_many_servers_start_at_once(python, root):
    """F074"""
    pool = Pool(lambda: [OwnServer(python, str(root)) for _ in range(6)])
    try:
        RealEpisode(pool, "toy_1", SOON)
        assert len({server.url for server in pool._holders}) == 6
    finally:
        pool.close()


def test_servers_end_with_their_pool(python, root):
    pool = Pool(lambda: [OwnServer(python, str(root))])
    RealEpisode(pool, "toy_1", SOON)
    (server,) = pool._holders
    pool.close()
    assert server.process.poll() is not None


def test_what_is_missing_is_said_with_the_commands(python, root, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="appworld download data"):
        RealTasks(str(tmp_path))
    for urls, interpreter in (((), None), (("http://127.0.0.1:1",), python)):
        with pytest.raises(OptionError, match="appworld_python"):
            pool_of(urls, interpreter, str(root), 1)
    with pytest.raises(OptionError, match="pip install appworld"):
        RealEpisode(pool_of((), sys.executable, str(root), 1), "toy_1", SOON)
    with pytest.raises(OptionError, match="cannot be run"):
        RealEpisode(pool_of((), str(tmp_path / "nothing"), str(root), 1), "toy_1", SOON)
    monkeypatch.setenv("APPWORLD_STUB", "refuses")
    refusing = Pool(lambda: [OwnServer(python, str(root))])
    with pytest.raises(ServerUnreachable, match=r"(?s)Did not find any ./data.*download data"):
        RealEpisode(refusing, "toy_1", SOON)


def test_a_server_that_ends_at_its_first_answer_is_heard(python, root, monkeypatch):
    monkeypatch.setenv("APPWORLD_STUB", "crashes")
    server = OwnServer(python, str(root))
    with pytest.raises(ServerUnreachable, match=r"(?s)no room left.*download data"):
        server.ready()
    assert server.process.poll() is not None


def test_a_given_url(pool, python, root):
    RealEpisode(pool, "toy_1", SOON)
    url = next(iter(pool._holders)).url
    given = pool_of((url,), None, str(root), 1)
    assert RealEpisode(given, "toy_4", SOON).execute("print(x)").output == "0\n"


def test_pools_that_share_a_given_server_do_not_share_its_world(pool, root):
    """Lists of URLs may overlap, and the server itself tells worlds apart by the task only."""
    RealEpisode(pool, "toy_1", SOON)
    one, two = (server.url for server in pool._holders)
    pools = [pool_of(urls, None, str(root), n) for n, urls in enumerate([(one,), (one + "/",)], 1)]
    pools.append(pool_of((one, two), None, str(root), 1))
    episodes = [RealEpisode(p, "toy_4", SOON) for p in pools]
    for turn in range(1, 4):
        for number, episode in enumerate(episodes, 1):
            episode.execute(f"x += {number}")
        shown = [episode.execute("print(x)").output for episode in episodes]
        assert shown == [f"{turn * number}\n" for number in range(1, 4)]


def test_threads_get_the_same_pool(root, monkeypatch):
    class SlowPool(Pool):
        def __init__(self, make):
            time.sleep(0.05)
            super().__init__(make)

    monkeypatch.setattr("agent_envs.envs.appworld.real.pool.Pool", SlowPool)
    found: list[Pool] = []
    ask = partial(pool_of, ("http://127.0.0.1:9",), None, str(root), 1)
    threads = [threading.Thread(target=lambda: found.append(ask())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "https://localhost", "http://", "http://a:b", "http://[::1", "", 8000]
)
def test_urls_of_no_server_are_refused_at_once(url, root):
    with pytest.raises(OptionError, match=r"must look like http://127\.0\.0\.1:8000"):
        pool_of((url,), None, str(root), 1)


def test_a_server_that_is_named_twice_is_refused(root):
    """Two episodes would play in its one world."""
    with pytest.raises(OptionError, match="twice"):
        pool_of(("http://127.0.0.1:81", "http://127.0.0.1:81/"), None, str(root), 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"output":',
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\xff\xfe\x00",
        b"rubbish\r\n\r\n",
        b"",
    ],
)
def test_answers_that_are_none(answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.recv(1 << 16)
            connection.sendall(answer)
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(ServerUnreachable):
            server.ask("/execute", {"task_id": "toy_1", "code": ""}, 5)


def test_a_server_that_drips_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            try:
                for _ in range(100):
                    connection.sendall(b" ")
                    time.sleep(0.1)
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}")
        begun = time.monotonic()
        with pytest.raises(ServerUnreachable):
            server.ask("/execute", {}, 1)
        assert time.monotonic() - begun < 5


def test_an_interpreter_may_be_given_relative_to_where_we_run(python, root, monkeypatch):
    monkeypatch.chdir(Path(python).parent)
    pool = pool_of((), "./python", str(root), 1)
    try:
        assert RealEpisode(pool, "toy_1", SOON).execute("print(x)").output == "0\n"
    finally:
        pool.close()


@pytest.mark.parametrize("error", [ServerUnreachable("odd"), KeyboardInterrupt()])
def test_servers_that_run_end_where_a_later_one_fails(python, root, error):
    started: list[OwnServer] = []

    def make():
        started.append(OwnServer(python, str(root)))
        yield started[0]
        raise error

    with pytest.raises(type(error)):
        RealEpisode(Pool(make), "toy_1", SOON)
    assert started[0].process.poll() is not None


def test_a_server_that_cannot_be_run_is_an_error_with_the_commands(root, tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
    with pytest.raises(ServerUnreachable, match=r"(?s)No such file.*download data"):
        OwnServer(str(tmp_path / "gone"), str(root))
    if sys.platform == "linux":
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors as Linux does")
def test_servers_start_where_many_descriptors_are_open(python, root):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this system allows fewer descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        server = OwnServer(python, str(root))
        try:
            server.ready()
        finally:
            server.stop()
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_is_left_behind(python, root):
    before = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
    pool = Pool(lambda: [OwnServer(python, str(root))])
    RealEpisode(pool, "toy_1", SOON)
    pool.close()
    if sys.platform == "linux":
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
