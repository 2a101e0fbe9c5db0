"""What the adapter needs of the installed TRL. A failure here names the part of the seam that moved."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from tests.test_trl_losses import BareTrainer, batch, trl_loss

TESTED = "1.16"
TRAINER = "trl:GRPOTrainer"
VLLM = "trl.generation.vllm_generation:VLLMGeneration"
UTILS = "trl.trainer.utils"
SEAM = {}  # what -> a check that raises where the installed TRL is different


def seam(what: str):
    def add(check):
        SEAM[what] = check
        return check

    return add


def check(what: str) -> None:
    try:
        SEAM[what]()
    except Exception as error:
        said = str(error) or "an assertion of the check does not hold"
        pytest.fail(
            f"TRL {trl.__version__} changed {what}: {type(error).__name__}: {said}\n"
            f"the adapter was tested with {TESTED}; see trainers/trl_adapter/seam.py",
            pytrace=False,
        )


# -- signatures --

EXACT = {  # overridden by the adapter, or called by it as written here
    "_generate_and_score_completions": "self, inputs",
    "_prepare_inputs": "self, generation_batch",
    "_compute_loss": "self, model, inputs",
    "compute_loss": "self, model, inputs, return_outputs, num_items_in_batch",
    "training_step": "self, model, inputs, num_items_in_batch",
    "log": "self, logs, start_time",
    "get_train_dataloader": "self",
    "_save_checkpoint": "self, model, trial",
    "evaluate": "self, eval_dataset, ignore_keys, metric_key_prefix",
    "_get_output_dir": "self, trial",
    "_load_from_checkpoint": "self, resume_from_checkpoint, model",
    "_issue_warnings_after_load": "self, load_result",
}
AT_LEAST = {  # called with these; what else there is must have a default
    f"{TRAINER}._get_per_token_logps_and_entropies": (
        "self, model, input_ids, attention_mask, logits_to_keep, compute_entropy"
    ),
    f"{TRAINER}._generate_single_turn": "self, prompt_ids, images, multimodal_fields, num_generations",
    f"{VLLM}.__init__": (
        "self, model, accelerator, processing_class, mode, server_base_url, server_host, server_port, "
        "server_timeout, group_port, tensor_parallel_size, gpu_memory_utilization, max_model_length, "
        "max_num_seqs, enable_sleep_mode, temperature, top_p, top_k, max_completion_length, logprobs, "
        "generation_kwargs"
    ),
    f"{VLLM}.generate": "self, prompts, images, num_generations",
    f"{VLLM}.sync_weights": "self",
    f"{UTILS}:use_adapter": "model, adapter_name",
}


def parameters(where: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(resolve_name(where)).parameters)


def listed(names: str) -> list[str]:
    return names.split(", ")


for _name, _names in EXACT.items():

    @seam(f"the parameters of GRPOTrainer.{_name}")
    def exactly(name=_name, names=_names):
        assert list(parameters(f"{TRAINER}.{name}")) == listed(names)


for _where, _names in AT_LEAST.items():

    @seam(f"the parameters of {_where.partition(':')[2]}")
    def at_least(where=_where, names=_names):
        found = parameters(where)
        missing = [name for name in listed(names) if name not in found]
        assert not missing, f"no longer there: {missing}"
        extra = [
            name
            for name, parameter in found.items()
            if name not in listed(names)
            and parameter.default is inspect.Parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        assert not extra, f"new, without a default: {extra}"
        order = [name for name in found if name in listed(names)]
        assert order == listed(names), f"another order: {order}"


# -- attributes and config fields --


def source(where: str) -> str:
    return inspect.getsource(resolve_name(where))


for _name in (
    *("_step", "_buffered_inputs", "_metrics", "entropy_coef", "_entropy_bonus_enabled", "beta"),
    *("ref_model", "epsilon_low", "epsilon_high", "generation_config", "eos_token_ids"),
    *("num_iterations", "max_completion_length", "reward_funcs", "num_generations", "_tokenizer"),
):

    @seam(f"self.{_name}, set when a GRPOTrainer is made")
    def is_set(name=_name):
        made = source(f"{TRAINER}.__init__")
        assert re.search(rf"self\.{name}(: [^=\n]+)? = ", made), "not assigned"


@seam("the names of GRPOConfig's fields")
def config_fields():
    names = {field.name for field in dataclasses.fields(trl.GRPOConfig)}
    missing = {
        *("loss_type", "epsilon", "epsilon_high", "delta", "beta", "num_iterations"),
        *("steps_per_generation", "temperature", "top_p", "top_k", "max_completion_length"),
        *("entropy_coef", "importance_sampling_level", "use_bias_correction_kl"),
        *("disable_dropout", "mask_truncated_completions", "scale_rewards", "top_entropy_quantile"),
        *("use_adaptive_entropy", "off_policy_mask_threshold", "use_vllm", "generation_kwargs"),
        *("chat_template_kwargs", "num_generations", "vllm_importance_sampling_correction"),
    } - names
    assert not missing, f"no longer there: {sorted(missing)}"


# -- the batch and the loss --

MASK = [[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]]
KEYS = {
    *("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages"),
    *("old_per_token_logps", "ref_per_token_logps", "num_items_in_batch"),
}


def example(advantages=None):
    torch.manual_seed(0)
    old, ref, log_probs = -torch.rand(3, 4, 3)
    advantages = torch.tensor([1.0, -1.0, 0.5, 0.0]) if advantages is None else advantages
    return log_probs, batch(MASK, advantages, old=old, ref=ref)


class Recorded(dict):
    """A batch that notes which keys are asked for."""

    def __init__(self, *args):
        super().__init__(*args)
        self.read = set()

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.read.add(key)
        return super().get(key, default)


@seam("the keys of the batch that _compute_loss reads")
def batch_keys():
    log_probs, given = example()
    assert given.keys() == KEYS
    inputs = Recorded(given)
    loss, _ = trl_loss(log_probs, inputs, beta=0.1, loss_type="dapo")  # a new one: KeyError
    assert loss.isfinite()
    unread = KEYS - inputs.read
    assert not unread, f"no longer read: {sorted(unread)}"


@seam("that old log-probs may be absent (then the ratio is 1)")
def no_old_log_probs():
    log_probs, inputs = example()
    del inputs["old_per_token_logps"]
    loss, gradient = trl_loss(log_probs, inputs, loss_type="bnpo")
    weight = inputs["advantages"][:, None] * torch.tensor(MASK) / 6
    torch.testing.assert_close(loss, -weight.sum())
    torch.testing.assert_close(gradient, -weight)


@seam("that _compute_loss takes advantages of shape (B, T)")
def token_advantages():
    log_probs, inputs = example()
    per_row = trl_loss(log_probs, inputs, loss_type="bnpo")
    wide = inputs | {"advantages": inputs["advantages"][:, None].expand(4, 3)}
    for got, wanted in zip(trl_loss(log_probs, wide, loss_type="bnpo"), per_row, strict=True):
        assert torch.equal(got, wanted)
    one = torch.zeros(4, 3)
    one[0, 1] = 2
    inputs = inputs | {"advantages": one, "old_per_token_logps": log_probs}
    _, gradient = trl_loss(log_probs, inputs, loss_type="bnpo")
    torch.testing.assert_close(gradient, -one / 6)


@seam("that _compute_loss divides by self.current_gradient_accumulation_steps")
def accumulation():
    assert "self.current_gradient_accumulation_steps" in source(f"{TRAINER}._compute_loss")
    log_probs, inputs = example()
    for loss_type in ("grpo", "bnpo", "dapo"):
        trainer = BareTrainer(log_probs, loss_type=loss_type)
        once = trainer._compute_loss(trainer.model, inputs)
        trainer.current_gradient_accumulation_steps = 2
        assert trainer._compute_loss(trainer.model, inputs) * 2 == once, loss_type


@seam(
    "the denominators of the loss types (rows, tokens, num_items_in_batch / steps_per_generation)"
)
def denominators():
    log_probs, inputs = example(torch.ones(4))
    inputs |= {"old_per_token_logps": log_probs, "num_items_in_batch": torch.tensor(24)}
    wanted = {"grpo": 3 / 4, "bnpo": 1, "dapo": 6 / 24 * 4, "dr_grpo": 6 / (4 * 5), "luspo": 6 / 4}
    for loss_type, loss in wanted.items():
        settings = {"steps_per_generation": 4, "max_completion_length": 5}
        got, _ = trl_loss(log_probs, inputs, loss_type=loss_type, **settings)
        assert got.item() == pytest.approx(-loss), loss_type


@seam("that _compute_loss reads self.entropy_coef at each call")
def entropy_coefficient():
    log_probs, inputs = example()
    trainer = BareTrainer(log_probs, entropies=torch.ones(4, 3), entropy_coef=0.5)
    loss = trainer._compute_loss(trainer.model, inputs)
    trainer.entropy_coef = 0
    off = (trainer._compute_loss(trainer.model, inputs) - loss).item()
    assert off == pytest.approx(0.5), f"the bonus of mean entropy 1 at 0.5 is {off}"


# -- log-probs and generation --


class Scorer(BareTrainer):
    """With TRL's own scoring method."""

    _get_per_token_logps_and_entropies = trl.GRPOTrainer._get_per_token_logps_and_entropies


class Positions:
    """A model whose logits are a free tensor (rows, positions, tokens), whatever the text is."""

    training = True

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, *, input_ids, labels, **_):
        log_probs = self.logits.log_softmax(-1)[:, :-1]
        chosen = log_probs.gather(-1, input_ids[:, 1:, None]).squeeze(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        scored = labels[:, 1:] != -100
        pad = torch.zeros(len(input_ids), 1)
        return SimpleNamespace(
            log_probs=torch.cat([pad, torch.where(scored, chosen, 0)], 1),
            entropy=torch.cat([pad, torch.where(scored, entropy, 0)], 1),
        )


def text(mask) -> dict:
    """Three prompt tokens (the first one padding) and the tokens of the mask, out of 7."""
    rows, width = mask.shape
    ids = torch.randint(7, (rows, 3 + width))
    prompt_mask = torch.tensor([0, 1, 1]).expand(rows, 3)
    return {
        **batch(mask, torch.randn(rows, width), old=-torch.rand(rows, width)),
        "prompt_ids": ids[:, :3],
        "prompt_mask": prompt_mask,
        "completion_ids": ids[:, 3:],
    }


@seam("what _get_per_token_logps_and_entropies returns (log-probs, entropies, a third)")
def scores():
    torch.manual_seed(0)
    mask = torch.tensor(MASK[:3])
    inputs = text(mask)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], mask], 1)
    logits = torch.randn(3, 6, 7)
    found = Scorer()._get_per_token_logps_and_entropies(
        Positions(logits), ids, attention, logits_to_keep=3, compute_entropy=True
    )
    assert len(found) == 3
    assert found[0].shape == found[1].shape == (3, 3)
    wanted = logits.log_softmax(-1)[:, 2:-1].gather(-1, ids[:, 3:, None]).squeeze(-1)
    torch.testing.assert_close(found[0], wanted * mask)


def returned_tuples(where: str) -> list[int]:
    """Lengths of the tuples in the return statements; 0 for another value."""
    nodes = ast.walk(ast.parse(textwrap.dedent(source(where))))
    values = [node.value for node in nodes if isinstance(node, ast.Return)]
    return [len(value.elts) if isinstance(value, ast.Tuple) else 0 for value in values]


@seam("what GRPOTrainer._generate_single_turn returns (ids, log-probs)")
def generated():
    assert returned_tuples(f"{TRAINER}._generate_single_turn") == [2]


@seam("what VLLMGeneration.generate returns (prompt ids, completion ids, log-probs, their tokens)")
def generated_by_vllm():
    assert set(returned_tuples(f"{VLLM}.generate")) == {4}


# -- from the rollout to the mini-batches --


def columns(rows: int) -> dict:
    """A batch with extra columns that name their row."""
    row = torch.arange(rows)
    return {
        "prompt_ids": row[:, None].expand(rows, 2),
        "values": row[:, None] + torch.zeros(rows, 3),
        "returns": row.double(),
        "names": [str(k) for k in range(rows)],
        "num_items_in_batch": torch.tensor(17),
        "ref_per_token_logps": None,
    }


def rows_of(chunk: dict) -> list[int]:
    """The rows in a chunk; raises unless all columns agree."""
    rows = chunk["prompt_ids"][:, 0].tolist()
    assert chunk["values"].tolist() == [[k] * 3 for k in rows]
    assert chunk["returns"].tolist() == rows
    assert chunk["names"] == [str(k) for k in rows]
    assert chunk["num_items_in_batch"].item() == 17
    assert chunk["ref_per_token_logps"] is None
    return rows


@seam("split_tensor_dict: it drops the rows beyond a multiple of the number of chunks")
def split():
    chunks = resolve_name(f"{UTILS}:split_tensor_dict")(columns(7), 3)
    assert [rows_of(chunk) for chunk in chunks] == [[0, 1], [2, 3], [4, 5]]


@seam("split_tensor_dict: the first value counts the rows, so a scalar cannot come first")
def split_counts_the_first():
    first = {"num_items_in_batch": torch.tensor(17)} | columns(6)
    with pytest.raises((IndexError, TypeError)):
        resolve_name(f"{UTILS}:split_tensor_dict")(first, 3)


@seam("shuffle_sequence_dict: extra columns stay with their rows")
def shuffle():
    torch.manual_seed(0)
    rows = rows_of(resolve_name(f"{UTILS}:shuffle_sequence_dict")(columns(20)))
    assert rows != list(range(20))
    assert sorted(rows) == list(range(20))


@seam("_prepare_inputs: M mini-batches of a rollout, mu times, then the next rollout")
def mini_batches():
    torch.manual_seed(0)
    trainer = BareTrainer(steps_per_generation=2, num_iterations=2)
    asked = []

    def rollout(inputs):
        asked.append(inputs)
        return columns(6)

    trainer._generate_and_score_completions = rollout
    got = []
    for step in range(8):
        got.append(rows_of(trainer._prepare_inputs([f"rows of step {step}"])))
        trainer._step += 1
    assert asked == [["rows of step 0"], ["rows of step 4"]]
    assert got[:2] == got[2:4] != got[4:6] == got[6:]
    assert sorted(got[0] + got[1]) == list(range(6))


# -- the tests --


@pytest.mark.parametrize("what", SEAM)
def test_seam(what):
    check(what)


def test_a_moved_seam_is_named(monkeypatch):
    def renamed(self, model, batch):
        return batch["prompt_ids"].sum()

    monkeypatch.setattr(trl.GRPOTrainer, "_compute_loss", renamed)
    monkeypatch.delattr(trl.GRPOTrainer, "_generate_single_turn")
    monkeypatch.setattr(f"{UTILS}.split_tensor_dict", lambda columns, chunks: [columns] * chunks)
    monkeypatch.setattr(trl, "__version__", "9.9.9")
    for what, said in {
        "the parameters of GRPOTrainer._compute_loss": "AssertionError",
        "the parameters of GRPOTrainer._generate_single_turn": "AttributeError.*_generate_single_turn",
        "split_tensor_dict: it drops the rows beyond a multiple of the number of chunks": "Assert",
    }.items():
        message = (
            rf"(?s)^TRL 9\.9\.9 changed {re.escape(what)}: {said}.*tested with 1\.16; see train"
        )
        with pytest.raises(pytest.fail.Exception, match=message):
            check(what)


LOSSES = [
    *(("token", kind) for kind in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo")),
    *(("sequence", kind) for kind in ("grpo", "luspo")),
]


@pytest.mark.parametrize(("level", "loss_type"), LOSSES)
def test_F104_masked_positions_have_gradient_zero(level, loss_type):
    """An observation inside the completion and padding at its end: neither reaches loss or gradient."""
    torch.manual_seed(0)
    mask = torch.tensor([[1, 1, 0, 0, 1, 1], [1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]])
    old, ref, log_probs = -torch.rand(3, 3, 6)
    inputs = batch(mask, torch.randn(3, 6), old=old, ref=ref)
    settings = {"importance_sampling_level": level, "loss_type": loss_type, "beta": 0.1}
    loss, gradient = trl_loss(log_probs, inputs, **settings)
    assert torch.equal(gradient != 0, mask == 1)
    changed = torch.where(mask == 1, log_probs, -torch.rand(3, 6))
    other, other_gradient = trl_loss(changed, inputs, **settings)
    assert torch.equal(other, loss)
    assert torch.equal(other_gradient, gradient)


@pytest.mark.parametrize(("level", "loss_type"), LOSSES)
def test_F104_the_text_of_the_prompt_is_not_trained_on(level, loss_type):
    """Other tokens in the prompt, or where the mask is 0: the same loss, and the same gradient for the
    logits of the policy's own tokens; exactly 0 for all others. Through TRL's own scoring method.
    """
    torch.manual_seed(0)
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 0]])
    inputs = text(mask)
    logits = torch.randn(2, 7, 7)
    settings = {"importance_sampling_level": level, "loss_type": loss_type, "entropy_coef": 0.1}

    def run(inputs):
        leaf = logits.clone().requires_grad_()
        trainer = Scorer(**settings)
        loss = trainer._compute_loss(Positions(leaf), inputs)
        loss.backward()
        return loss.detach(), leaf.grad

    loss, gradient = run(inputs)
    own = torch.zeros(2, 7, dtype=torch.bool)
    own[:, 2:-1] = mask == 1  # the logits that predict them are one place earlier
    assert torch.equal((gradient != 0).any(-1), own)
    prompt = (inputs["prompt_ids"] + 3) % 7
    completion = torch.where(
        mask == 1, inputs["completion_ids"], (inputs["completion_ids"] + 3) % 7
    )
    other, other_gradient = run(inputs | {"prompt_ids": prompt, "completion_ids": completion})
    assert torch.equal(other, loss)
    assert torch.equal(other_gradient, gradient)


def test_no_telemetry_leaves_the_trainers():
    """TRL sends from ``_send_telemetry`` only; both of our trainers override it."""
    import inspect

    from trl import GRPOTrainer, SFTTrainer

    from trainers.trl_adapter import sft, trainer

    for base, ours in ((GRPOTrainer, trainer.StepwiseTrainer), (SFTTrainer, sft._SFT)):
        assert "_send_telemetry" in dir(base), (
            "TRL renamed its telemetry: find it and switch it off"
        )
        assert ours._send_telemetry is not base._send_telemetry
        assert "send_telemetry(" not in inspect.getsource(ours._send_telemetry).replace(
            "def _send_telemetry(", ""
        )
