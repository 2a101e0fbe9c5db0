"""Where sessions' calls run: one at a time each, and none behind another's that hangs (FIELD_CASES F117)."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time

import pytest

from agent_envs_server.engine import PATIENCE, QUICK, Crew, Engine


def engines(number: int, crew: Crew | None = None, *, bound: bool = False) -> list[Engine]:
    crew = crew or Crew()
    return [Engine(f"session-{i}", crew, lambda: bound) for i in range(number)]


async def warmed(found: list[Engine]) -> list[Engine]:
    """Engines whose next calls go to the shared thread."""
    for engine in found:
        await engine.submit(lambda: None)
    return found


def test_results_and_errors_come_back():
    async def play():
        (engine,) = await warmed(engines(1))
        assert await engine.submit(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await engine.submit(lambda: 1 / 0)
        return await engine.submit(lambda: threading.current_thread().name)

    assert asyncio.run(play()).startswith("shared")


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("error", [StopIteration("odd"), SystemExit("odd")])
def test_errors_that_no_future_takes_are_answers_too(error, bound):
    def call() -> None:
        raise error

    async def play():
        engine, other = await warmed(engines(2, bound=bound))
        failing, fine = engine.submit(call), other.submit(lambda: 3)
        with pytest.raises(RuntimeError, match=f"{type(error).__name__}: odd"):
            await asyncio.wait_for(failing, 10)
        assert await asyncio.wait_for(fine, 10) == 3
        return await asyncio.wait_for(engine.submit(lambda: 7), 10)

    assert asyncio.run(play()) == 7


def test_quick_sessions_share_a_thread_and_slow_ones_have_their_own():
    async def play():
        quick = await warmed(engines(20))
        names = {await engine.submit(lambda: threading.current_thread().name) for engine in quick}
        slow = quick[0]
        await slow.submit(lambda: time.sleep(2 * QUICK))
        return names, await slow.submit(lambda: threading.current_thread().name)

    shared, apart = asyncio.run(play())
    assert len(shared) == 1
    assert apart == "session-0"


def test_calls_that_hang_hold_up_nobody_else():
    release = threading.Event()

    async def play():
        hanging, *others = await warmed(engines(12))
        stuck = [hanging.submit(release.wait)]
        begun = time.monotonic()
        for number, engine in enumerate(others):
            if number % 3 == 2:  # a second, a third that hangs, while the first still does
                stuck.append(engine.submit(release.wait))
            else:
                assert await engine.submit(lambda n=number: n) == number
        waited = time.monotonic() - begun
        assert not any(call.done() for call in stuck)
        release.set()
        assert await asyncio.gather(*stuck) == [True] * len(stuck)
        return waited

    try:
        assert asyncio.run(play()) < 5  # not for ever; a handover takes PATIENCE
    finally:
        release.set()
    assert PATIENCE < 0.1


def test_threads_do_not_pile_up():
    async def play():
        found = await warmed(engines(4))
        for _ in range(5):
            await asyncio.gather(*(e.submit(lambda: time.sleep(2 * PATIENCE)) for e in found))
            await asyncio.gather(*(e.submit(lambda: None) for e in found))

    before = threading.active_count()
    asyncio.run(play())
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before + 2


def test_a_thread_that_became_idle_as_it_was_taken_over_from_counts_no_more():
    """It still takes one job; when that looked like a job that hangs, each takeover led to the next."""

    async def play():
        crew = Crew()
        (engine,) = await warmed(engines(1, crew))
        await engine.submit(lambda: None)
        crew._take_over()  # with a thread that waits for jobs
        names = set()
        for _ in range(12):
            names.add(await engine.submit(lambda: threading.current_thread().name))
            await asyncio.sleep(2.5 * PATIENCE)
        return names

    assert asyncio.run(play()) <= {"shared-1", "shared-2"}


@pytest.mark.parametrize("seed", range(3))
def test_calls_of_a_session_never_overlap(seed):
    rng = random.Random(seed)

    async def session(engine: Engine, pauses: list[float]) -> list[int]:
        at_work: list[int] = []

        def call(number: int, pause: float) -> int:
            at_work.append(number)
            time.sleep(pause)
            assert at_work.pop() == number
            assert not at_work
            return number

        return [await engine.submit(lambda n=n, p=p: call(n, p)) for n, p in enumerate(pauses)]

    async def play():
        crew = Crew()
        plans = [
            [rng.choice((0, 0, 0, 0.001, 0.003, 0.008, 0.02)) for _ in range(30)] for _ in range(16)
        ]
        found = await asyncio.gather(
            *(session(e, p) for e, p in zip(engines(16, crew), plans, strict=True))
        )
        assert found == [list(range(30))] * 16

    asyncio.run(asyncio.wait_for(play(), 60))


@pytest.mark.parametrize("bound", [True, False])
def test_the_last_call_waits_for_the_one_at_work(bound):
    order: list[str] = []
    ended = threading.Event()

    def last() -> None:
        order.append("last")
        ended.set()

    async def play():
        (engine,) = await warmed(engines(1, bound=bound))
        call = engine.submit(lambda: (time.sleep(0.05), order.append("call")))
        await asyncio.sleep(0.01)
        engine.stop(last)
        await call

    asyncio.run(play())
    assert ended.wait(10)
    assert order == ["call", "last"]


def test_a_call_that_still_waits_never_runs_after_the_last_one():
    release, ended = threading.Event(), threading.Event()

    async def play():
        hanging, engine = await warmed(engines(2))
        stuck = hanging.submit(release.wait)
        waiting = engine.submit(lambda: "made after the end")
        engine.stop(ended.set)
        assert ended.wait(10)
        with pytest.raises(RuntimeError, match="closed"):
            await waiting
        release.set()
        await stuck

    try:
        asyncio.run(asyncio.wait_for(play(), 30))
    finally:
        release.set()


def test_a_bound_session_keeps_its_thread():
    """What holds an SQLite connection (or a browser) may be used in one thread only."""

    async def play():
        (engine,) = engines(1, bound=True)
        database = await engine.submit(lambda: sqlite3.connect(":memory:"))
        for pause in (0, 2 * PATIENCE, 0):
            await engine.submit(lambda p=pause: (time.sleep(p), database.execute("select 1")))
        closed = threading.Event()
        engine.stop(lambda: (database.close(), closed.set()))
        assert await asyncio.to_thread(closed.wait, 10)

    asyncio.run(play())


def test_a_crew_serves_the_loop_that_comes_after_another():
    crew = Crew()

    async def play():
        (engine,) = await warmed(engines(1, crew))
        return await asyncio.wait_for(engine.submit(lambda: 3), 10)

    assert [asyncio.run(play()) for _ in range(3)] == [3] * 3
