"""TRL's own loss code against the seed system's numbers, and the critic's loss.

``BareTrainer`` runs the installed ``GRPOTrainer._compute_loss`` on given log-probs, without a model.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from contextlib import nullcontext
from math import exp
from types import SimpleNamespace
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from agent_envs.core import OptionError
from tests.conftest import load_json, shared
from trainers.trl_adapter.value_loss import clipped_value_loss

TOLERANCE = 1e-6
NAN = float("nan")


# -- a trainer that is only its loss --


class OneProcess:
    """What the loss asks of accelerate, for one process."""

    num_processes = 1
    sync_gradients = is_main_process = True
    device = torch.device("cpu")

    def gather(self, tensor):
        return tensor

    gather_for_metrics = gather
    autocast = staticmethod(nullcontext)

    def reduce(self, tensor, reduction="sum"):
        return tensor


class BareTrainer(trl.GRPOTrainer):
    """``GRPOTrainer`` with the attributes that its loss reads, the installed GRPOConfig's defaults among them.

    ``settings`` overrides config fields. The log-probs (and entropies) are given, not computed.
    """

    def __init__(self, log_probs=None, entropies=None, **settings):
        defaults = {f.name: f.default for f in dataclasses.fields(trl.GRPOConfig)}
        defaults |= {"use_bias_correction_kl": False, "report_to": [], "steps_per_generation": 1}
        unknown = settings.keys() - defaults.keys()
        assert not unknown, f"not in GRPOConfig: {unknown}"
        self.args = args = SimpleNamespace(**defaults | settings)
        self.log_probs, self.entropies = log_probs, entropies
        for name in (
            *("loss_type", "beta", "importance_sampling_level", "top_entropy_quantile"),
            *("off_policy_mask_threshold", "entropy_coef", "use_adaptive_entropy", "use_vllm"),
            *("max_completion_length", "num_iterations", "vllm_importance_sampling_correction"),
        ):
            setattr(self, name, getattr(args, name))
        self.epsilon_low = args.epsilon
        self.epsilon_high = args.epsilon if args.epsilon_high is None else args.epsilon_high
        self._entropy_bonus_enabled = args.entropy_coef != 0
        self.aux_loss_enabled = False
        self.current_gradient_accumulation_steps = 1
        self._step, self._buffered_inputs = 0, None
        self.accelerator, self.model = OneProcess(), SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=0)
        self._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}

    def _get_per_token_logps_and_entropies(self, model, *args, **kwargs):
        entropies = torch.zeros_like(self.log_probs) if self.entropies is None else self.entropies
        return self.log_probs, entropies, None


def batch(mask, advantages, *, old=None, ref=None) -> dict:
    """What ``_generate_and_score_completions`` returns; token ids do not matter to a BareTrainer."""
    mask = torch.as_tensor(mask)
    ids = torch.ones(mask.shape, dtype=torch.long)
    given = {"old_per_token_logps": old, "ref_per_token_logps": ref}
    return {
        "prompt_ids": ids[:, :2],
        "prompt_mask": ids[:, :2],
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": torch.as_tensor(advantages),
        "num_items_in_batch": mask.sum(),
        **{key: torch.as_tensor(value) for key, value in given.items() if value is not None},
    }


def trl_loss(log_probs, inputs: dict, **settings):
    """(loss, its gradient with respect to the log-probs) of the installed TRL."""
    leaf = torch.as_tensor(log_probs).detach().clone().requires_grad_()
    trainer = BareTrainer(leaf, **settings)
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.detach(), leaf.grad


# -- the seed system's own numbers (float32) --


class Figures(NamedTuple):
    """Cases that are equal, all cases, and the largest differences of loss and gradient."""

    equal: int
    cases: int
    loss: float
    gradient: float


def golden(name: str, **wanted) -> list[tuple[str, dict, dict]]:
    cases = load_json(shared(f"golden/advantages/{name}.json"))["cases"]
    found = [(c["name"], c["inputs"], c["outputs"]) for c in cases]
    return [c for c in found if all(c[1].get(key) == value for key, value in wanted.items())]


def compare(what: str, results) -> Figures:
    """``results``: (loss, gradient, expected loss, expected gradient) of each case."""
    off = [
        (abs(float(loss) - wanted), float((gradient - torch.tensor(wanted_gradient)).abs().max()))
        for loss, gradient, wanted, wanted_gradient in results
    ]
    equal = sum(loss <= TOLERANCE and gradient <= TOLERANCE for loss, gradient in off)
    figures = Figures(equal, len(off), max(o[0] for o in off), max(o[1] for o in off))
    print(
        f"{what}: {equal}/{len(off)} equal, loss {figures.loss:.1e}, gradient {figures.gradient:.1e}"
    )
    return figures


def policy_result(i: dict, o: dict, factor=1, **settings):
    inputs = batch(i["response_mask"], i["advantages"], old=i["old_log_prob"])
    clips = {"epsilon": i["cliprange_low"], "epsilon_high": i["cliprange_high"]}
    loss, gradient = trl_loss(i["log_prob"], inputs, **clips, **settings)
    return loss * factor, gradient * factor, o["pg_loss"], o["grad_log_prob"]


@pytest.mark.parametrize(
    ("aggregation", "loss_type", "count"),
    [
        ("token-mean", "bnpo", 24),
        ("token-mean", "dapo", 24),
        ("seq-mean-token-mean", "grpo", 24),
        ("seq-mean-token-sum", "luspo", 12),
    ],
)
def test_golden_dual_clip_is_delta(aggregation, loss_type, count):
    results = [
        policy_result(i, o, loss_type=loss_type, delta=i["clip_ratio_c"])
        for _, i, o in golden("policy_loss_ppo_dualclip", loss_agg_mode=aggregation)
    ]
    figures = compare(f"dual clip, {aggregation} = {loss_type}", results)
    assert (figures.equal, figures.cases) == (count, count)
    assert max(figures.loss, figures.gradient) <= TOLERANCE


def test_golden_dual_clip_needs_delta():
    """Without ``delta`` some cases differ, so the cases above do reach the second clip."""
    cases = golden("policy_loss_ppo_dualclip", loss_agg_mode="token-mean")
    figures = compare("no dual clip", [policy_result(i, o, loss_type="bnpo") for _, i, o in cases])
    lower = sum(o["pg_clipfrac_lower"] > 0 for _, _, o in cases)
    assert figures.equal == figures.cases - lower < figures.cases


def test_golden_dual_clip_aggregations_that_trl_lacks():
    """seq-mean-token-sum-norm (sum over all / padded width) is ``dr_grpo`` times the number of rows."""
    cases = golden("policy_loss_ppo_dualclip")
    modes = Counter(i["loss_agg_mode"] for _, i, _ in cases)
    covered = {"token-mean": 24, "seq-mean-token-mean": 24, "seq-mean-token-sum": 12}
    assert modes - Counter(covered) == {"seq-mean-token-sum-norm": 12}
    plain, times_rows = [], []
    for _, i, o in golden("policy_loss_ppo_dualclip", loss_agg_mode="seq-mean-token-sum-norm"):
        rows, width = len(i["log_prob"]), len(i["log_prob"][0])
        settings = {"loss_type": "dr_grpo", "delta": 3.0, "max_completion_length": width}
        plain.append(policy_result(i, o, **settings))
        times_rows.append(policy_result(i, o, factor=rows, **settings))
    assert compare("seq-mean-token-sum-norm = dr_grpo", plain).equal == 0
    assert compare("seq-mean-token-sum-norm = dr_grpo x rows", times_rows).equal == 12


def test_golden_gspo():
    settings = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
    cases = golden("policy_loss_gspo")
    figures = compare("GSPO", [policy_result(i, o, **settings) for _, i, o in cases])
    assert (figures.equal, figures.cases) == (18, 18)
    small = [i for _, i, _ in cases if (i["cliprange_low"], i["cliprange_high"]) == (3e-4, 4e-4)]
    assert len(small) == 12
    token = compare("token ratios", [policy_result(i, o, loss_type="grpo") for _, i, o in cases])
    assert token.equal < 18


def kl_result(i: dict, mask, wanted, wanted_gradient):
    inputs = batch(mask, torch.zeros(len(mask)), old=i["log_prob"], ref=i["ref_log_prob"])
    loss, gradient = trl_loss(i["log_prob"], inputs, beta=1.0, loss_type="bnpo")
    return loss, gradient, wanted, wanted_gradient


def test_golden_k3_is_beta_but_for_the_clamp():
    """TRL does not clip k3 to [-10, 10]: the two cases with a token beyond differ, and only they."""
    cases = [c for c in golden("kl_penalty") if c[1]["kind"] in ("k3", "low_var_kl")]
    free, beyond = [], {}
    for name, i, o in cases:
        mask = i.get("response_mask") or [[1.0] * len(row) for row in i["log_prob"]]
        kl = torch.tensor(o["kl"])
        wanted = o.get("loss_token_mean", float(kl.mean()))
        result = kl_result(i, mask, wanted, o.get("grad_log_prob", torch.zeros_like(kl).tolist()))
        if bool((kl[torch.tensor(mask) > 0] == 10).any()):
            beyond[name] = result
        else:
            free.append(result)
    figures = compare("k3", free)
    assert (figures.equal, figures.cases) == (17, 17)
    figures = compare("k3 beyond 10", beyond.values())
    assert (figures.equal, figures.cases) == (0, 2)
    assert sorted(beyond) == ["case7|k3", "k3_clamped_at_10"]
    loss, _, wanted, _ = beyond["k3_clamped_at_10"]  # d = 29 and 0
    assert (float(loss), wanted) == (pytest.approx((exp(29) - 30) / 2, rel=1e-6), 5)


def test_use_bias_correction_kl_changes_the_gradient_of_k3():
    """TRL's default multiplies the KL by the ratio; the seed does not."""
    _, i, _ = next(c for c in golden("kl_penalty", kind="k3") if "response_mask" in c[1])
    inputs = batch(i["response_mask"], torch.zeros(3), old=i["log_prob"], ref=i["ref_log_prob"])
    seed, default = (
        trl_loss(i["log_prob"], inputs, beta=1.0, loss_type="bnpo", use_bias_correction_kl=on)
        for on in (False, True)
    )
    assert seed[0] == default[0]
    assert float((seed[1] - default[1]).abs().max()) > 1e-3


def test_golden_value_loss():
    results = []
    for name, i, o in golden("value_loss"):
        values = torch.tensor(i["vpreds"], requires_grad=True)
        mask = torch.tensor(i["response_mask"])
        given = torch.tensor(i["values"]), torch.tensor(i["returns"]), mask
        got = clipped_value_loss(values, *given, clip=i["cliprange_value"])
        loss = got.total / mask.sum()
        loss.backward()
        results.append((loss.detach(), values.grad, o["vf_loss"], o["grad_vpreds"]))
        assert float(got.clipped / mask.sum()) == pytest.approx(o["vf_clipfrac"], abs=1e-6), name
    figures = compare("value loss", results)
    assert (figures.equal, figures.cases) == (9, 9)


def test_golden_aggregation_with_an_empty_row():
    """The seed's mean of row means is NaN there; TRL counts the row as 0."""
    types = {"token-mean": "bnpo", "seq-mean-token-sum": "luspo", "seq-mean-token-mean": "grpo"}
    got = {}
    for _, i, o in golden("agg_loss"):
        advantages = -torch.tensor(i["loss_mat"])  # ratio 1: the loss of a token is -advantage
        inputs = batch(i["loss_mask"], advantages)
        loss, _ = trl_loss(torch.zeros(2, 2), inputs, loss_type=types[i["mode"]])
        got[i["mode"]] = float(loss), float(o["loss"])
    assert got["token-mean"] == (1.5, 1.5)
    assert got["seq-mean-token-sum"] == (1.5, 1.5)
    assert got["seq-mean-token-mean"] == (0.75, pytest.approx(NAN, nan_ok=True))
    assert len(got) == 3


# -- without golden cases --


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dapo", "dr_grpo"])
def test_entropy_bonus_is_the_mean_over_the_micro_batch(loss_type):
    """The bonus is -coef * mean entropy of the masked tokens, whatever the loss type's own aggregation."""
    torch.manual_seed(0)
    logits = torch.randn(3, 4, 7)
    chosen = torch.randint(7, (3, 4, 1))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    advantages = torch.tensor([1.0, -0.5, 0.25])

    def run(coef: float, by_hand: float = 0):
        leaf = logits.clone().requires_grad_()
        log_probs = leaf.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        token = log_probs.gather(-1, chosen).squeeze(-1)
        trainer = BareTrainer(token, entropy, entropy_coef=coef, loss_type=loss_type)
        loss = trainer._compute_loss(trainer.model, batch(mask, advantages))
        loss = loss - by_hand * (entropy * mask).sum() / mask.sum()
        loss.backward()
        return loss.detach(), leaf.grad

    with_bonus, plain, by_hand = run(0.5), run(0), run(0, by_hand=0.5)
    off = [float((a - b).abs().max()) for a, b in zip(with_bonus, by_hand, strict=True)]
    print(f"entropy bonus, {loss_type}: loss {off[0]:.1e}, gradient {off[1]:.1e}")
    assert max(off) <= TOLERANCE
    assert float((with_bonus[1] - plain[1]).abs().max()) > 1e-3


GSPO = {
    "importance_sampling_level": "sequence",
    "loss_type": "grpo",
    "epsilon": 3e-4,
    "epsilon_high": 4e-4,
}


def test_F098_the_sequence_ratio_leaves_padding_out():
    """Differences [0.1, 0.3] and padding 99: ratio exp(0.2) = 1.2214, gradient A * ratio / length."""
    old = torch.zeros(1, 3)
    inputs = batch([[1, 1, 0]], torch.tensor([-1.0]), old=old)
    loss, gradient = trl_loss(torch.tensor([[0.1, 0.3, 99.0]]), inputs, **GSPO)
    assert float(loss) == pytest.approx(1.2214, abs=5e-5)
    assert float(loss) == pytest.approx(exp(0.2), abs=1e-6)
    assert gradient.tolist() == [[pytest.approx(exp(0.2) / 2)] * 2 + [0]]


@pytest.mark.parametrize(
    "settings",
    [GSPO, {"loss_type": "bnpo"}, {"loss_type": "grpo"}],
    ids=["gspo", "token-mean", "row-mean"],
)
def test_F098_permuting_rows_or_padding_changes_nothing(settings):
    torch.manual_seed(0)
    old = -torch.rand(4, 3)
    log_probs = old + torch.randn(4, 3) * 1e-3
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]])
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.25])
    loss, gradient = trl_loss(log_probs, batch(mask, advantages, old=old), **settings)

    order = torch.tensor([2, 0, 3, 1])
    moved = batch(mask[order], advantages[order], old=old[order])
    other, other_gradient = trl_loss(log_probs[order], moved, **settings)
    torch.testing.assert_close(other, loss, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(other_gradient, gradient[order], rtol=0, atol=TOLERANCE)

    junk = torch.full((4, 2), 9.0)  # differences of 18 on four padded columns
    padded = batch(
        torch.cat([mask, torch.zeros_like(junk).long()], 1),
        advantages,
        old=torch.cat([old, -junk], 1),
    )
    other, other_gradient = trl_loss(torch.cat([log_probs, junk], 1), padded, **settings)
    torch.testing.assert_close(other, loss, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(other_gradient[:, :3], gradient, rtol=0, atol=TOLERANCE)
    assert not other_gradient[:, 3:].any()


def test_F098_trl_bounds_neither_the_ratio_nor_padding_of_99():
    """Why the adapter pads log-probs with 0 and takes out rows with a wild ratio itself.

    Should this fail because the losses have become finite, the adapter's guards may go.
    """
    wild = batch([[1, 1]], torch.tensor([-1.0]), old=torch.zeros(1, 2))
    assert not trl_loss(torch.tensor([[100.0, 100.0]]), wild, **GSPO)[0].isfinite()
    padding = batch([[1, 0]], torch.tensor([-1.0]), old=torch.zeros(1, 2))
    loss, _ = trl_loss(torch.tensor([[0.0, 99.0]]), padding, loss_type="bnpo")
    assert (
        not loss.isfinite()
    )  # the token ratio is infinite, and infinity times the mask's 0 is NaN


# -- the critic's loss --


def test_value_loss_by_hand():
    """V .0 .9 .2, V_old 0, R 1 1 9: the second is clipped to .5; the third's clip does nothing."""
    values = torch.tensor([[0.0, 0.9, 0.2]], requires_grad=True)
    old, returns = torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 9.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    got = clipped_value_loss(values, old, returns, mask)
    got.total.backward()
    assert float(got.total.detach()) == pytest.approx(1 + 0.25 + 8.8**2)
    assert got.clipped.item() == 1
    assert values.grad.tolist() == [[-2, 0, pytest.approx(-17.6)]]
    free = clipped_value_loss(values, old, returns, mask, clip=None)
    assert float(free.total.detach()) == pytest.approx(1 + 0.01 + 8.8**2)
    assert free.clipped.item() == 0


def test_value_loss_of_nothing_is_zero_with_gradient_zero():
    values = torch.full((2, 3), NAN, requires_grad=True)
    got = clipped_value_loss(values, values, values, torch.zeros(2, 3))
    got.total.backward()
    assert (got.total.item(), got.clipped.item()) == (0, 0)
    assert values.grad.tolist() == [[0] * 3] * 2
    empty = torch.zeros(0, 4)
    assert clipped_value_loss(empty, empty, empty, empty).total == 0


def test_value_loss_ignores_what_lies_outside_the_mask():
    torch.manual_seed(0)
    values, old, returns = torch.randn(3, 2, 4)
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    junk = torch.where(mask.bool(), 0.0, NAN)

    def run(*tensors):
        leaf = tensors[0].clone().requires_grad_()
        got = clipped_value_loss(leaf, *tensors[1:], mask)
        got.total.backward()
        return got.total.detach(), got.clipped, leaf.grad

    plain = run(values, old, returns)
    for with_junk in ((values + junk, old, returns), (values, old + junk, returns + junk)):
        for got, wanted in zip(run(*with_junk), plain, strict=True):
            assert torch.equal(got, wanted)
    assert not plain[2][mask == 0].any()


def test_value_loss_adds_up_over_micro_batches():
    torch.manual_seed(0)
    values, old, returns = torch.randn(3, 5, 4)
    mask = torch.rand(5, 4) < 0.6
    whole = clipped_value_loss(values, old, returns, mask)
    rows = [
        clipped_value_loss(*(t[k : k + 1] for t in (values, old, returns, mask))) for k in range(5)
    ]
    torch.testing.assert_close(sum(r.total for r in rows), whole.total)
    assert sum(r.clipped for r in rows) == whole.clipped


def test_value_loss_precision_and_constants():
    for given, computed in (
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ):
        values = torch.ones(1, 2, dtype=getattr(torch, given), requires_grad=True)
        old, returns = torch.zeros(2, 1, 2, requires_grad=True)
        got = clipped_value_loss(values, old, returns, torch.ones(1, 2))
        assert got.total.dtype == getattr(torch, computed)
        assert torch.autograd.grad(got.total, values)[0].dtype == values.dtype
        assert not clipped_value_loss(
            values.detach(), old, returns, torch.ones(1, 2)
        ).total.requires_grad


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        (
            {"old_values": (2, 1)},
            {},
            r"old_values: expected the shape of values, \(2, 3\), got \(2, 1\)",
        ),
        ({"returns": (3,)}, {}, r"returns: .* got \(3,\)"),
        ({"mask": (2, 3, 1)}, {}, r"mask: .* got \(2, 3, 1\)"),
        ({}, {"clip": 0}, "clip: expected a number above 0 or None, got 0"),
        ({}, {"clip": NAN}, "clip: .* got nan"),
    ],
)
def test_value_loss_errors_name_the_argument(changes, options, message):
    shapes = dict.fromkeys(("values", "old_values", "returns", "mask"), (2, 3)) | changes
    error = OptionError if options else ValueError
    with pytest.raises(error, match=message):
        clipped_value_loss(*(torch.zeros(shape) for shape in shapes.values()), **options)


@pytest.mark.parametrize("wrong", [0.5, 2, -1, NAN])
def test_value_loss_mask_is_zero_or_one(wrong):
    with pytest.raises(ValueError, match="mask: expected only 0 and 1"):
        clipped_value_loss(*torch.zeros(3, 1, 2), torch.tensor([[1, wrong]]))
