"""Bridges: the text loop, and TRL, SkyRL-gym, GEM and RLlib themselves where they are installed.

``tests/interop/bridges.sh`` runs this file with each library in a virtual environment of its own.
"""

from __future__ import annotations

import pickle
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded

import agent_envs
from agent_envs.adapters.text_env import TextEnv
from agent_envs.adapters.trl import HubEnvironment, trl_dataset, trl_environment
from agent_envs.agent import AgentGroup, ConversationPrompt
from agent_envs.core.errors import AgentEnvError, OptionError
from tests.conftest import ROOT
from tests.toy import ToyEnv

SOKOBAN, LINE, CARDS = (
    "AgentEnv/Sokoban-6x6-1box-v0",
    "AgentEnv/NumberLine-v0",
    "AgentEnv/EZPoints-v0",
)
TOY = "tests.test_bridges:AgentEnv/BridgeToy-v0"
agent_envs.register("AgentEnv/BridgeToy-v0", ToyEnv)

PICTURES = {"obs_mode": "both", "image_size": 64}


def needs(module: str):
    return pytest.mark.skipif(
        find_spec(module) is None,
        reason=f"{module} is not installed here (tests/interop/bridges.sh installs it)",
    )


def local(env_id, seed, actions, **options):
    """(observation, reward, terminated, truncated) of each action, played by hand."""
    env = gymnasium.make(f"agent_envs:{env_id}", **options)
    observation, _ = env.reset(seed=seed)
    steps = []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        steps.append((observation, float(reward), terminated, truncated))
        if terminated or truncated:
            break
    return steps


def solution(env_id, seed, **options):
    """The expert's actions from that start."""
    group = agent_envs.make_group(env_id, **options)
    agent, found = AgentGroup(group, expert=True), []
    prompts = agent.reset([seed])
    while prompts:
        action = prompts[0].view.expert_action
        found.append(action)
        prompts = agent.step([agent.parser.format(action)]).prompts
    return found


def long_start(env_id=LINE):
    """A seed from which the first action does not end the episode, and that action."""
    return next(
        (seed, actions[0])
        for seed in range(50)
        if len(actions := solution(env_id, seed, max_steps=20)) > 2
    )


def tagged(action):
    return f"<think>so</think><action>{action}</action>"


# -- the text loop ------------------------------------------------------------------------------


@pytest.mark.parametrize("conversation", [False, True])
@pytest.mark.parametrize("env_id", [SOKOBAN, LINE, CARDS])
def test_the_text_loop_shows_and_rewards_what_an_agent_group_does(env_id, conversation):
    actions = solution(env_id, 5)
    group = agent_envs.make_group(env_id)
    agent = AgentGroup(
        group, prompt=ConversationPrompt(group.profile.prompt) if conversation else None
    )
    (prompt,) = agent.reset([5])
    env = TextEnv(env_id, conversation=conversation)
    turn = env.reset(seed=5)
    chat, played = list(turn.messages), []
    for action in actions:
        assert chat == list(prompt.messages)
        reply = agent.parser.format(action)
        prompts = agent.step([reply]).prompts
        turn = env.step(reply)
        played.append((turn.observation, turn.reward, turn.terminated, turn.truncated))
        if prompts:
            (prompt,) = prompts
        chat = (
            [*chat, {"role": "assistant", "content": reply}, *turn.messages]
            if conversation
            else turn.messages
        )
    assert played == local(env_id, 5, actions)
    assert turn.done
    assert turn.messages == []
    with pytest.raises(ResetNeeded):
        env.step("more")


def test_a_chosen_task_and_a_given_start():
    env = TextEnv(LINE)
    turn = env.reset(seed=3, options={"start": 1, "target": 3, "max_position": 5})
    assert (turn.info["position"], turn.info["target"]) == (1, 3)
    by_index = TextEnv(TOY).reset(seed=3, options={"task_index": 4})
    assert by_index.info["task_id"] == "task-4"


def test_without_a_seed_episodes_follow_the_last_seeds_sequence():
    first, second = TextEnv(SOKOBAN), TextEnv(SOKOBAN)
    for env in (first, second):
        env.reset(seed=11)
    assert first.reset().observation == second.reset().observation
    assert (
        TextEnv(SOKOBAN).reset(seed=first.seed).observation
        == first.reset(seed=first.seed).observation
    )


def test_a_failure_ends_the_episode_as_truncated_and_the_next_one_plays():
    env = TextEnv(TOY)
    env.reset(seed=1)
    turn = env.step(tagged("raise"))
    assert (turn.terminated, turn.truncated, turn.messages) == (False, True, [])
    assert "raised on command" in turn.error
    env.reset(seed=1)
    turn = env.step(tagged("win"))
    assert (turn.reward, turn.terminated, turn.error) == (1.0, True, None)


def test_a_start_that_fails_says_why():
    env = TextEnv(TOY, bad_tasks=("task-2",))
    with pytest.raises(AgentEnvError, match="cannot start task-2"):
        env.reset(seed=1, options={"task_index": 2})
    with pytest.raises(ResetNeeded):
        env.step("x")
    assert env.reset(seed=1, options={"task_index": 3}).messages


HOSTILE = [
    "",
    "\0",
    "x" * 100_000,
    "</action>" * 50,
    "<action>",
    "\U0010ffff\u202e",
    "🎲" * 999,
    "{" * 999,
]


@pytest.mark.parametrize("untagged", [None, "action"])
def test_any_text_is_a_counted_turn(untagged):
    env = TextEnv(LINE, untagged=untagged, max_steps=len(HOSTILE) + 1)
    env.reset(seed=1)
    for count, reply in enumerate(HOSTILE, 1):
        turn = env.step(reply)
        assert (turn.info["steps"], turn.info["is_action_valid"], turn.done) == (
            count,
            False,
            False,
        )
    with pytest.raises(ValueError, match="must be a str"):
        env.step(5)
    assert env.step("still there").info["steps"] == len(HOSTILE) + 1


@pytest.mark.parametrize("conversation", [False, True])
def test_pictures_come_as_parts(conversation):
    pytest.importorskip("PIL")
    env, (seed, action) = TextEnv(LINE, conversation=conversation, **PICTURES), long_start()
    for turn in (env.reset(seed=seed), env.step(tagged(action))):
        images = [part["image"] for part in turn.messages[-1]["content"] if part["type"] == "image"]
        assert np.array_equal(np.asarray(images[-1]), turn.observation["image"])


def test_the_program_of_the_documentation(run_python):
    program = (ROOT / "examples" / "any_loop.py").read_text(encoding="utf-8")
    said = run_python(program).stdout
    assert said == "0 4 False -0.4 None\n1 4 False -0.4 None\n"


# -- TRL ----------------------------------------------------------------------------------------


def test_trl_an_episode_by_tool_calls():
    actions = solution(SOKOBAN, 9)
    env = trl_environment(SOKOBAN)()
    opening = env.reset(prompt=[{"role": "user", "content": ""}], seed=9, unknown_column="x")
    start = gymnasium.make(f"agent_envs:{SOKOBAN}").reset(seed=9)[0]
    assert start in opening
    assert "calling the tool `act`" in opening
    shown = [env.act(action) for action in actions]
    steps = local(SOKOBAN, 9, actions)
    for text, (observation, *_) in zip(shown, steps, strict=True):
        assert observation in text
    assert shown[-1].endswith("The episode is over.")
    assert env.get_reward() == sum(reward for _, reward, *_ in steps) > 0
    assert env.act("up") == "The episode is over."
    assert env.get_reward() == sum(reward for _, reward, *_ in steps)
    env.reset(seed=9)
    assert env.get_reward() == 0.0


def test_trl_takes_tagged_arguments_and_any_other():
    env = trl_environment(LINE, max_steps=50)()
    seed, action = long_start()
    env.reset(seed=seed)
    plain = env.act(action)
    env.reset(seed=seed)
    assert env.act(f"<action>{action}</action>") == plain
    for odd in (None, 5, ["+"], {"a": 1}, *HOSTILE):
        env.reset(seed=seed)
        assert "over" not in env.act(odd)


def test_trl_a_row_without_a_seed_is_refused_and_a_failure_ends_the_rollout():
    env = trl_environment(TOY)()
    with pytest.raises(OptionError, match="needs a `seed`"):
        env.reset(prompt=[])
    env.reset(seed=1)
    assert env.act("raise") == "The environment failed. The episode is over."
    assert (env.act("win"), env.get_reward()) == ("The episode is over.", 0.0)
    env.reset(seed=1, task_index=6)
    assert "task-6" in env.act("wait") or "win task-6" in env.reset(seed=1, task_index=6)


def test_trl_pictures_are_parts():
    pytest.importorskip("PIL")
    env, (seed, action) = trl_environment(LINE, **PICTURES)(), long_start()
    for content in (env.reset(seed=seed), env.act(action)):
        assert {"image", "text"} == {part["type"] for part in content}


def test_trl_the_starts():
    pytest.importorskip("datasets")
    rows = trl_dataset(3, seed=4, columns={"environment": "line"})
    assert rows["seed"] == trl_dataset(3, seed=4)["seed"] != trl_dataset(3, seed=5)["seed"]
    assert len(set(rows["seed"])) == 3
    assert rows[0]["environment"] == "line"
    with pytest.raises(OptionError):
        trl_dataset(0)


def tool_model():
    """An untrained model of bytes with the chat template of Qwen3, which knows tools."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from trl.chat_template_utils import qwen3_chat_template

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    of_bytes = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    of_bytes.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=of_bytes, pad_token="<pad>", eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>"], chat_template=qwen3_chat_template,
    )  # fmt: skip
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=16384,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        return Qwen3ForCausalLM(config), tokenizer


@needs("trl")
def test_trl_the_trainer_plays_groups_from_one_start(tmp_path, monkeypatch):
    """Its own loop of tool calls; only the model's words are written beforehand."""
    import json

    from trl import GRPOConfig, GRPOTrainer

    env = gymnasium.make(f"agent_envs:{LINE}")
    for root in range(50):  # two starts that differ and take a few actions
        rows = trl_dataset(2, seed=root)
        plans = {seed: solution(LINE, seed) for seed in rows["seed"]}
        starts = {env.reset(seed=seed)[0]: seed for seed in plans}
        if len(starts) == 2 and min(map(len, plans.values())) > 1:
            break
    wrong, seen, openings = ["no such action", "?"], [], []

    class Scripted(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            texts = [self._tokenizer.decode(ids) for ids in prompt_ids]
            if not openings:
                openings.extend(texts)
            return [self._tokenizer.encode(reply(i, text)) for i, text in enumerate(texts)], None

    def reply(i, text):
        _, _, said = text.partition("<|im_start|>user\n")
        (seed,) = [seed for start, seed in starts.items() if start in said.split("<|im_end|>")[0]]
        steps = said.count("</tool_call>")
        solves = "SOLVING" in said or (steps == 0 and i % 2 == 0)
        actions = plans[seed] if solves else wrong
        if steps >= len(actions):
            return "I am done.<|im_end|>"
        call = json.dumps({"name": "act", "arguments": {"action": actions[steps]}})
        return f"{'SOLVING' if solves else 'TRYING'}\n<tool_call>\n{call}\n</tool_call><|im_end|>"

    def spy(completions, environments, seed, **kwargs):
        for completion, environment, row in zip(completions, environments, seed, strict=True):
            tools = [message["content"] for message in completion if message["role"] == "tool"]
            seen.append(
                (row, "SOLVING" in completion[0]["content"], tools, environment.get_reward())
            )
        return [0.0] * len(completions)

    model, tokenizer = tool_model()
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    trainer = Scripted(
        model=model, processing_class=tokenizer, reward_funcs=[spy], train_dataset=rows,
        environment_factory=trl_environment(LINE),
        args=GRPOConfig(
            output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], max_steps=1,
            per_device_train_batch_size=4, gradient_accumulation_steps=1, num_generations=2,
            max_completion_length=8192, logging_steps=1, save_strategy="no", disable_tqdm=True,
        ),
    )  # fmt: skip
    trainer.train()
    assert len(seen) == 4
    assert openings[0] == openings[1] != openings[2] == openings[3]
    rewards = []
    for seed, solves, tools, reward in seen:
        steps = local(LINE, seed, plans[seed] if solves else wrong)
        assert len(tools) == len(steps)
        assert all(step[0] in text for step, text in zip(steps, tools, strict=True))
        assert reward == sum(step[1] for step in steps)
        rewards.append(reward)
    assert [solves for _, solves, *_ in seen] == [True, False] * 2
    log = trainer.state.log_history[0]
    name = HubEnvironment.__name__
    assert log[f"rewards/{name}/mean"] == pytest.approx(np.mean(rewards))
    assert log["grad_norm"] > 0
    assert log["tools/failure_frequency"] == 0


# -- SkyRL-gym ----------------------------------------------------------------------------------


@pytest.fixture
def skyrl():
    import skyrl_gym

    from agent_envs.adapters import skyrl

    made = []

    def make(env_id, extras, env_config=None, **options):
        name = f"{env_id} {len(made)}"
        made.append(skyrl.register(env_id, name, **options))
        return skyrl_gym.make(name, env_config=env_config or {}, extras=extras)

    yield make
    for name in made:
        skyrl_gym.envs.deregister(name)


@needs("skyrl_gym")
@pytest.mark.parametrize("extras", [{"seed": 9}, {"extra_info": {"seed": 9}, "max_turns": 99}])
def test_skyrl_an_episode(skyrl, extras):
    actions = solution(SOKOBAN, 9)
    env, twin = (skyrl(SOKOBAN, extras) for _ in range(2))
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "-"}]
    chat, metadata = env.init(prompt)
    assert (chat, metadata["task_id"]) == (twin.init(prompt)[0], twin.init(prompt)[1]["task_id"])
    assert chat[0] == prompt[0]
    assert len(chat) == 2
    assert gymnasium.make(f"agent_envs:{SOKOBAN}").reset(seed=9)[0] in chat[1]["content"]
    for action, (observation, reward, terminated, truncated) in zip(
        actions, local(SOKOBAN, 9, actions), strict=True
    ):
        out = env.step(tagged(action))
        assert out["reward"] == reward
        assert out["done"] == (terminated or truncated)
        assert out["done"] == (out["observations"] == [])
        assert out["done"] or observation in out["observations"][0]["content"]
    assert env.get_metrics() == {"won": True, "score": 1.0, "steps": len(actions), "error": False}
    assert type(env).aggregate_metrics([env.get_metrics(), twin.get_metrics()])["won"] == 0.5
    env.close()


@needs("skyrl_gym")
def test_skyrl_options_limits_and_failures(skyrl):
    with pytest.raises(OptionError, match="needs a `seed`"):
        skyrl(SOKOBAN, {})
    env = skyrl(LINE, {"seed": 1, "max_turns": 2}, {"max_position": 50})
    env.init([])
    assert [env.step("?")["done"] for _ in range(2)] == [False, True]
    env = skyrl(TOY, {"seed": 1, "task_index": 5})
    assert env.init([])[1]["task_id"] == "task-5"
    out = env.step(tagged("raise"))
    assert out["done"]
    assert out["metadata"]["truncated"]
    assert "raised" in out["metadata"]["error"]
    assert out["reward"] == 0.0
    assert env.get_metrics()["error"]
    with pytest.raises(OptionError, match="obs_mode='text'"):
        skyrl(LINE, {"seed": 1}, PICTURES).init([])


# -- GEM ----------------------------------------------------------------------------------------


@pytest.fixture
def gem_name():
    import gem.envs.registration

    from agent_envs.adapters.gem import register

    made = []

    def name(env_id, **options):
        made.append(register(env_id, f"{env_id} {len(made)}", **options))
        return made[-1]

    yield name
    for known in made:
        del gem.envs.registration.ENV_REGISTRY[known]


@needs("gem")
def test_gem_an_episode(gem_name):
    import random

    import gem

    random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    actions = solution(SOKOBAN, 9)
    env = gem.make(gem_name(SOKOBAN))
    observation, info = env.reset(seed=9)
    start, _ = gymnasium.make(f"agent_envs:{SOKOBAN}").reset(seed=9)
    assert start in observation
    assert info["steps"] == 0
    twin = None
    for action, step in zip(actions, local(SOKOBAN, 9, actions), strict=True):
        twin = env.spawn(same_state=True)
        assert twin.step(tagged(action))[:4] == (result := env.step(tagged(action)))[:4]
        assert result[1:4] == step[1:]
        assert step[0] in result[0]
    assert result[4]["won"]
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    # our memory: a later prompt shows what was done
    env.reset(seed=9)
    assert f"your action: {actions[0]}" in env.step(tagged(actions[0]))[0]


@needs("gem")
@pytest.mark.parametrize("async_mode", [False, True])
def test_gem_vectors_make_groups_and_other_starts(gem_name, async_mode):
    import gem

    vec = gem.make_vec([gem_name(SOKOBAN)] * 3, async_mode=async_mode, seed=20)
    single = gymnasium.make(f"agent_envs:{SOKOBAN}")
    for k, observation in enumerate(vec.reset()[0]):  # the constructor's seeds
        assert single.reset(seed=20 + k)[0] in observation
    observations, _ = vec.reset(seed=[7, 7, 7])
    assert observations[0] == observations[1] == observations[2]
    actions = solution(SOKOBAN, 7)
    steps = local(SOKOBAN, 7, actions)
    for action, (_, reward, terminated, _) in zip(actions, steps, strict=True):
        _, rewards, ended, _, _ = vec.step([tagged(action), "nonsense", tagged("no")])
        assert rewards[0] == reward
        assert ended.tolist() == [terminated, False, False]
    assert single.reset(seed=7)[0] not in vec.envs[0]._turn.observation  # it went on by itself


@needs("gem")
def test_gem_wrappers_failures_pictures_and_random_play(gem_name):
    import gem
    from gem.wrappers.wrapper_factory import WRAPPER_FACTORY

    env = gem.make(gem_name(TOY))
    env.reset(seed=1, options={"task_index": 1})
    assert env.sample_random_action() in {env._env.format_action(a) for a in ("wait", "win")}
    _, reward, terminated, truncated, info = env.step(tagged("raise"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert "raised" in info["error"]
    assert env.sample_random_action() == ""
    wrapped = WRAPPER_FACTORY["concat_with_action"](gem.make(gem_name(LINE, conversation=True)))
    seed, action = long_start()
    wrapped.reset(seed=seed)
    shown = wrapped.step(tagged(action))[0]
    assert shown.count("inside <action>") == 1
    assert tagged(action) in shown
    pictures = gem.make(gem_name(LINE, **PICTURES))
    observation, info = pictures.reset(seed=1)
    assert str(info["target"]) in observation["problem"]
    assert len(observation["images"]) == 1
    made = pickle.loads(pickle.dumps(pictures.entry_point))()  # as a worker process gets it
    assert made.reset(seed=1)[0]["problem"] == observation["problem"]


# -- RLlib --------------------------------------------------------------------------------------


@needs("ray")
def test_rllib_a_rollout_on_one_node():
    pytest.importorskip("ray.rllib")
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    from agent_envs.adapters import rllib

    rllib.register("hub-line", LINE, observation="grid")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        config = (
            PPOConfig()
            .environment("hub-line", env_config={"max_steps": 8})
            .env_runners(num_env_runners=1, num_envs_per_env_runner=2)
            .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
            .debugging(seed=5)
        )
        algorithm = config.build_algo()
        found = algorithm.train()["env_runners"]
        algorithm.stop()
    finally:
        ray.shutdown()
    assert found["num_env_steps_sampled"] >= 64
    assert found["num_episodes"] > 0
    assert found["episode_len_max"] <= 8


@needs("ray")
def test_rllib_seeds_arrive_and_failures_cut_the_episode():
    pytest.importorskip("ray.rllib")
    from agent_envs.adapters import rllib

    env = rllib.make(SOKOBAN, {"observation": "grid"}, {"max_steps": 3})
    _, info = env.reset(seed=9)
    start, known = gymnasium.make(f"agent_envs:{SOKOBAN}").reset(seed=9)
    assert info["task_id"] == known["task_id"]
    steps = local(SOKOBAN, 9, ["up", "down", "left"], max_steps=3)
    names = env.unwrapped.admissible_actions()
    played = [env.step(names.index(action))[1:4] for action in ("up", "down", "left")]
    assert played == [step[1:] for step in steps]
    with pytest.raises(ResetNeeded):
        env.step(0)
    env = rllib.make(TOY, {"observation": "text", "actions": ["raise", "win"]}, {})
    shown, _ = env.reset(seed=1)
    again, reward, terminated, truncated, info = env.step(0)
    assert np.array_equal(again, shown)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["error"] == "RuntimeError: raised on command"
    env.reset(seed=1)
    assert env.step(1)[1:4] == (1.0, True, False)


@needs("ray")
def test_rllib_runners_of_one_seed_see_the_same():
    pytest.importorskip("ray.rllib")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    from agent_envs.adapters import rllib

    rllib.register("hub-rooms", SOKOBAN, observation="grid", flatten=True, max_steps=5)

    def starts(seed):
        config = PPOConfig().environment("hub-rooms").debugging(seed=seed)
        runner = SingleAgentEnvRunner(config=config, worker_index=1)
        return [
            e.get_observations(0).tolist()
            for e in runner.sample(num_episodes=3, random_actions=True)
        ]

    first = starts(5)
    assert first == starts(5) != starts(6)
    assert first[0] != first[1] != first[2]


# -- absent libraries ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bridge", "library", "extra"),
    [
        ("import agent_envs.adapters.skyrl", "skyrl_gym", "skyrl"),
        ("import agent_envs.adapters.gem", "gem", "gem"),
        ("import agent_envs.adapters.rllib", "ray", "rllib"),
        ("from agent_envs.adapters.trl import trl_dataset; trl_dataset(1)", "datasets", "train"),
    ],
)
def test_an_absent_library_is_named(run_python, bridge, library, extra):
    code = (
        "import sys\n"
        f"sys.modules[{library!r}] = None\n"  # an import of it fails
        "from agent_envs.core.errors import MissingExtra\n"
        f"try:\n    {bridge}\nexcept MissingExtra as error:\n    print(error)"
    )
    assert f"pip install 'agent-envs[{extra}]'" in run_python(code).stdout


def test_the_text_loop_and_the_trl_bridge_import_no_library(run_python):
    code = (
        "import sys, agent_envs.adapters.trl, agent_envs.adapters.text_env\n"
        "print(sorted({'trl', 'torch', 'datasets', 'transformers', 'PIL'} & sys.modules.keys()))"
    )
    assert run_python(code).stdout.strip() == "[]"
