"""What ``vllm.sh`` runs: see there. Prints one JSON object of figures; an assertion stops it."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from agent_envs import evaluate
from agent_envs.agent import OpenAIChatPolicy
from trainers.trl_adapter.collect import agent_parts
from trainers.trl_adapter.config import from_dict, with_overrides
from trainers.trl_adapter.sft import starting_model
from trainers.trl_adapter.smollm2 import smollm2_folder
from trainers.trl_adapter.trainer import StepwiseTrainer

torch.set_num_threads(1)

EPISODES = 200  # the whole panel, behind HTTP

CONFIG: dict[str, Any] = {
    "algorithm": "gigpo",
    "env": {"id": "AgentEnv/NumberLine-v0", "options": {"max_position": 5}},
    "agent": {
        "prompt": {"first": "{observation}"},
        "memory": {"name": "none"},
        "parser": {"name": "tags", "reason": ""},
    },
    "model": {"hidden_size": 256, "layers": 2, "context": 64},  # heads of 64: what the kernels take
    "warm_start": {"episodes": 100, "learning_rate": 3e-3, "random": 0.7},
    "rollout": {"groups": 8, "group_size": 4, "max_completion_tokens": 5},
    "optim": {"learning_rate": 1e-3, "mini_batches": 2},
    "eval": {"every": 0, "split": "test", "episodes": EPISODES, "temperature": 1.0},
    "run": {"updates": 4, "save_every": 0, "log_to": [], "trajectories": 0, "progress": False},
    "trl": {
        "use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": 64,
        "vllm_gpu_memory_utilization": 0.3,
    },
}  # fmt: skip


def engine_hash(trainer: StepwiseTrainer) -> str:
    """Of the weights inside the engine."""

    def digest(model: Any) -> str:
        total = hashlib.sha256()
        for _, value in sorted(model.named_parameters()):
            total.update(value.detach().float().cpu().numpy().tobytes())
        return total.hexdigest()

    return str(trainer.vllm_generation.llm.apply_model(digest)[0])


def colocate(folder: Path, out: Path) -> dict[str, Any]:
    """Updates with the engine as sampler; its weights have to follow the trainer's."""
    begun = time.perf_counter()
    trainer = StepwiseTrainer(folder, from_dict(CONFIG), output_dir=out)
    started = time.perf_counter() - begun
    hashes = []

    class Watch:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            result = self._inner(*args, **kwargs)
            hashes.append(engine_hash(trainer))
            return result

    trainer._generate_and_score_completions = Watch(trainer._generate_and_score_completions)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    gaps = [row["sampling_logp_difference"] for row in rows]
    assert len(set(hashes)) == len(hashes) == 4, hashes  # new weights at each rollout
    assert max(gaps) < 0.05, gaps
    with trainer.sampling(1, temperature=0.0):
        greedy = [trainer.policy._generate([[3, 4, 5]])[0] for _ in range(2)]
    assert greedy[0] == greedy[1]
    trainer.close()
    return {
        "engine_start_seconds": round(started, 1),
        "weight_hashes": [text[:8] for text in hashes],
        "mean_logp_difference": [round(gap, 6) for gap in gaps],
        "importance_ratio_max": max(row["importance_ratio_max"] for row in rows),
        "tokens_per_second": [round(row["tokens_per_second"]) for row in rows],
    }


@contextmanager
def served(folder: Path, context: int) -> Iterator[str]:
    """``vllm serve`` on a free port; yields its base URL. (Its command asks for a package named ``vllm``.)"""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
        "--served-model-name", "policy", "--port", str(port),
        "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", str(context),
        "--enable-prefix-caching",
    ]  # fmt: skip
    log = Path(tempfile.gettempdir()) / "vllm-serve.log"
    with log.open("w") as sink:
        server = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        for _ in range(180):
            time.sleep(1)
            if server.poll() is not None:
                raise RuntimeError(f"vllm serve ended: see {log}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except (urllib.error.URLError, ConnectionError):
                continue
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


def behind_http(folder: Path, out: Path) -> dict[str, Any]:
    """The same model by the trainer's own sampler and over HTTP: the same success within the noise."""
    config = with_overrides(from_dict(CONFIG), {"trl": {}})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = StepwiseTrainer(folder, config, output_dir=out)
    begun = time.perf_counter()
    own = trainer.evaluate_panel()
    own_seconds = time.perf_counter() - begun
    trainer.close()
    with served(folder, 64) as url:
        policy = OpenAIChatPolicy(
            "policy", base_url=url, api_key="none", max_tokens=5, temperature=1.0
        )
        parts = agent_parts(config.env.id, config.agent, tokenizer, 59)
        begun = time.perf_counter()
        result = evaluate(
            policy, config.env.id, split="test", episodes=EPISODES, num_envs=32, **parts,
            **config.env.options,
        )  # fmt: skip
        seconds = time.perf_counter() - begun
    low, high = result.interval
    assert own.interval[0] <= high, (own, result)  # 95 % intervals overlap
    assert low <= own.interval[1], (own, result)
    return {
        "episodes": len(result.episodes),
        "served_success_rate": result.success_rate, "served_interval": [low, high],
        "own_success_rate": own.success_rate, "own_interval": list(own.interval),
        "served_invalid": result.invalid_action_rate, "own_invalid": own.invalid_action_rate,
        "served_steps": result.mean_steps, "own_steps": own.mean_steps,
        "served_seconds": round(seconds, 1), "own_seconds": round(own_seconds, 1),
    }  # fmt: skip


def speed() -> dict[str, Any]:
    """Tokens per second on SmolLM2: 32 prompts of 300 tokens in groups of 8, 32 new tokens each."""
    from transformers import AutoModelForCausalLM
    from vllm import LLM, SamplingParams

    folder = smollm2_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "You are in the kitchen. On the table you see a mug, a plate and a spoon. "
    tasks = [
        f"Task {i}: put the {thing} away. " for i, thing in enumerate(("mug", "pan", "egg", "cup"))
    ]
    prompts = [tokenizer.encode(task + text * 30)[:300] for task in tasks for _ in range(8)]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor(prompts)
    begun = time.process_time()
    with torch.no_grad():
        model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, min_new_tokens=32,
            max_new_tokens=32,
        )  # fmt: skip
    plain = len(prompts) * 32 / (time.process_time() - begun)
    del model
    engine = LLM(
        str(folder), dtype="float32", max_model_len=512, enable_prefix_caching=True,
        max_num_seqs=32, seed=0,
    )  # fmt: skip
    settings = SamplingParams(temperature=1.0, min_tokens=32, max_tokens=32)
    engine.generate([{"prompt_token_ids": prompts[0][:10]}], settings, use_tqdm=False)
    begun = time.process_time()
    engine.generate([{"prompt_token_ids": p} for p in prompts], settings, use_tqdm=False)
    ours = len(prompts) * 32 / (time.process_time() - begun)
    return {"transformers_tokens_per_cpu_second": plain, "vllm_tokens_per_cpu_second": ours,
            "ratio": ours / plain}  # fmt: skip


def main() -> None:
    parts = sys.argv[1:] or ["colocate", "http", "speed"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        config = with_overrides(from_dict(CONFIG), {"trl": {}})
        folder = starting_model(config, Path(name), progress=False)
        if "http" in parts:
            found["http"] = behind_http(folder, Path(name) / "http")
        if "colocate" in parts:
            found["colocate"] = colocate(folder, Path(name) / "out")
        if "speed" in parts:
            found["speed"] = speed()
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
