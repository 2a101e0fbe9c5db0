"""One small use of each extra: ``python smoke.py EXTRA`` in an environment that has it, outside the source tree.

Prints a line about what it did; any exception is a failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

SOKOBAN = "AgentEnv/Sokoban-6x6-1box-v0"
LINE = "AgentEnv/NumberLine-v0"


def core() -> str:
    import agent_envs
    from agent_envs.agent import AgentGroup, ExpertPolicy

    group = agent_envs.make_group("AgentEnv/ALFWorld-v0", num_groups=1, group_size=2)
    records = AgentGroup(group).rollout(ExpertPolicy(), seed=0).columns()
    group.close()
    for command in (["--version"], ["list", "--json"], ["doctor", "--json"]):
        _command(*command)
    return f"the expert played ALFWorld in a group of 2 ({len(records)} columns); doctor finds no fault"


def dev() -> str:
    tools = ("pytest", "mypy", "ruff", "xdist", "hypothesis", "selenium")
    for module in tools:
        __import__(module) if module != "ruff" else _run("-m", "ruff", "--version")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_one.py").write_text(
            "import gymnasium\n"
            "def test_one():\n"
            f"    assert gymnasium.make('agent_envs:{LINE}').reset(seed=1)[0]\n"
        )
        _run("-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", folder)
    return "pytest with a worker passes a test on an environment; mypy, ruff, hypothesis, selenium are there"


def vision() -> str:
    import gymnasium

    env = gymnasium.make(f"agent_envs:{SOKOBAN}", obs_mode="image")
    picture, _ = env.reset(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        _command("render", "Sokoban", f"{folder}/start.png")
    return f"Sokoban as a picture {picture.shape}; rendered to a PNG"


def webshop() -> str:
    import gymnasium

    env = gymnasium.make("agent_envs:AgentEnv/WebShop-v0")
    env.reset(seed=1)
    page = env.step("search[shirt]")[0]
    assert "Page 1" in page, page[:300]
    return "searched the embedded shop"


def webshop_tags() -> str:
    from agent_envs.envs.webshop.nouns import tag_titles

    (nouns,) = tag_titles(["Red Cotton Shirt for Men"])
    assert "shirt" in nouns, nouns
    return f"tagged a title: {nouns}"


def search() -> str:
    import gymnasium

    env = gymnasium.make("agent_envs:AgentEnv/Search-v0", retriever="dense")
    env.reset(seed=1)
    assert "Doc 1" in env.step("<search>a river in the north</search>")[0]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.jsonl")
        corpus.write_text('{"id": "1", "contents": "Oak\\nOaks are trees."}\n')
        _command("retriever", "index", str(corpus), "--out", f"{folder}/index", "--kind", "dense")
    with (
        _Started("retriever", "serve", "--embedded", "bm25") as url,
        urllib.request.urlopen(f"{url}/health", timeout=20) as answer,
    ):
        assert answer.status == 200
    return "dense search, `retriever index` and `retriever serve`"


def server() -> str:
    import agent_envs
    from agent_envs.agent import AgentGroup, RandomPolicy
    from agent_envs.group.remote import Remote

    with _Started("serve") as url:
        group = agent_envs.make_group(LINE, num_groups=2, group_size=2, backend=Remote(url))
        rollout = AgentGroup(group).rollout(RandomPolicy(), seed=0)
        group.close()
        with urllib.request.urlopen(url, timeout=20) as page:
            assert b"<html" in page.read()
    return f"served a group of 4 over a socket ({len(rollout.columns())} columns), and the page"


def openenv() -> str:
    from websockets.sync.server import serve

    from agent_envs.adapters.openenv import OpenEnvGym

    def page(link, request):
        return None if request.path == "/ws" else link.respond(404, "no such page")

    def session(link):
        for frame in link:
            over = json.loads(frame)["type"] == "step"
            shown = {"observation": {"text": "hello"}, "reward": float(over), "done": over}
            link.send(json.dumps({"type": "observation", "data": shown}))

    with serve(session, "127.0.0.1", 0, process_request=page) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        env = OpenEnvGym(f"http://127.0.0.1:{listening.socket.getsockname()[1]}")
        assert env.reset(seed=1)[0] == "hello"
        assert env.step('{"message": "hi"}')[1:3] == (1.0, True)
        env.close()
    return "played an episode on a stand-in OpenEnv server"


def appworld_monty() -> str:
    import gymnasium

    env = gymnasium.make("agent_envs:AgentEnv/AppWorld-v0", executor="monty")
    env.reset(seed=1)
    page = env.step("print(6 * 7)")[0]
    assert "42" in page, page
    env.close()
    return "executed an agent's code in monty"


def ray() -> str:
    import ray as library

    import agent_envs

    library.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    group = agent_envs.make_group(LINE, num_groups=2, group_size=2, backend="ray")
    observations, _ = group.reset(seed=1)
    group.close()
    library.shutdown()
    return f"a group of {len(observations)} in Ray's actors"


def rllib() -> str:
    import gymnasium
    from ray import rllib as library
    from ray.tune.registry import ENV_CREATOR, _global_registry

    from agent_envs.adapters import rllib as hub

    hub.register("line", LINE, observation="grid")
    env = _global_registry.get(ENV_CREATOR, "line")({"max_steps": 4})
    observation, _ = env.reset(seed=1)
    assert isinstance(env, gymnasium.Env)
    assert observation in env.observation_space
    return (
        f"registered with RLlib ({library.__name__}) and started; its algorithms need torch besides"
    )


def sb3() -> str:
    from stable_baselines3 import PPO

    import agent_envs
    from agent_envs.adapters.sb3 import SB3VecEnv

    envs = SB3VecEnv(agent_envs.make_group(LINE, num_groups=4, group_size=1))
    PPO("MlpPolicy", envs, n_steps=16, batch_size=32).learn(64)
    return "PPO took 64 steps"


def skyrl() -> str:
    import skyrl_gym

    from agent_envs.adapters import skyrl as hub

    env = skyrl_gym.make(hub.register(SOKOBAN), env_config={}, extras={"seed": 9})
    chat, _ = env.init([{"role": "user", "content": "-"}])
    assert env.step("<action>up</action>")["reward"] is not None
    return f"made by SkyRL-gym; a chat of {len(chat)}"


def gem() -> str:
    import gem as library

    from agent_envs.adapters import gem as hub

    env = library.make(hub.register(SOKOBAN))
    env.reset(seed=9)
    assert len(env.step("<action>up</action>")) == 5
    return "made by GEM; one step"


def lora() -> str:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, num_attention_heads=2, **shape))
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    out = adapted(torch.zeros(1, 2, dtype=torch.long)).logits
    return f"an adapter on a tiny model, logits {tuple(out.shape)}; our trainer needs the extra train besides"


def train() -> str:
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "algorithm": "gigpo",
            "env": {"id": LINE, "options": {"max_position": 5}},
            "agent": {"prompt": {"first": "{observation}"}, "memory": {"name": "none"},
                      "parser": {"name": "tags", "reason": ""}},
            "model": {"path": "tiny", "hidden_size": 16, "layers": 1, "context": 64},
            "rollout": {"groups": 2, "group_size": 2, "max_completion_tokens": 5},
            "critic": {"learning_rate": 1e-3},
            "eval": {"every": 1, "split": "test", "episodes": 4, "temperature": 1.0},
            "run": {"updates": 1, "save_every": 1, "output_dir": f"{folder}/run"},
        }  # fmt: skip
        Path(folder, "config.yaml").write_text(json.dumps(config))
        _run("-m", "trainers.trl_adapter", "--config", f"{folder}/config.yaml")
        assert list(Path(folder, "run").rglob("*.safetensors"))
    return "one update of a tiny model, with its evaluations and checkpoint"


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=400)
    if done.returncode:
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _command(*arguments: str) -> str:
    return _run("-m", "agent_envs", *arguments)


class _Started:
    """A command that listens on a free port and prints its URL; ``with`` gives that, and ends it."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "agent_envs", *command, "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> str:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())["url"]

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)


def docs() -> str:
    root = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", root / "mkdocs.yml", "-d", folder],
            check=True,
        )  # fmt: skip
        pages = len(list(Path(folder).rglob("index.html")))
    return f"the site, {pages} pages, strict"


EXTRAS = {
    one.__name__.replace("_", "-"): one
    for one in (
        core, dev, vision, webshop, webshop_tags, search, server, openenv, appworld_monty, ray, rllib, sb3, skyrl,
        gem, lora, train, docs,
    )
}  # fmt: skip

if __name__ == "__main__":
    print(EXTRAS[sys.argv[1]]())
