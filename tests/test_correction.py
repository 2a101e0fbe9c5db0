"""Importance correction between the sampling engine and the trainer."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from agent_envs.core import OptionError
from trainers.trl_adapter.correction import importance_ratio

OLD = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -1.0, -9.0]])
ENGINE = torch.tensor([[-1.0, -3.0, math.nan], [-5.0, -1.0, 7.0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def ratio(mode: str, low: float | None = None, high: float | None = None) -> list[list[float]]:
    return importance_ratio(OLD, ENGINE, MASK, mode=mode, low=low, high=high).tolist()


def test_tokens():
    e = math.e
    assert ratio("token_truncate") == [pytest.approx([1, e, 1]), pytest.approx([e**4, 1, 1])]
    assert ratio("token_truncate", 0.5, 2) == [pytest.approx([1, 2, 1]), pytest.approx([2, 1, 1])]
    assert ratio("token_mask", None, 3) == [pytest.approx([1, e, 1]), pytest.approx([0, 1, 1])]
    assert ratio("token_mask", 1.5, None) == [pytest.approx([0, e, 0]), pytest.approx([e**4, 0, 0])]


def test_sequences():
    e = math.e
    assert ratio("sequence_truncate") == [pytest.approx([e]), pytest.approx([e**4])]
    assert ratio("sequence_truncate", None, 3) == [pytest.approx([e]), [3]]
    assert ratio("sequence_mask", None, 3) == [pytest.approx([e]), [0]]


def test_wild_numbers_are_bounded():
    old, engine = torch.zeros(1, 2), torch.tensor([[-1e4, math.nan]])
    for mode in ("token_truncate", "sequence_truncate"):
        got = importance_ratio(old, engine, torch.ones(1, 2), mode=mode, low=0.0, high=3.0)
        assert torch.isfinite(got).all()
        assert got.max() == 3


def test_unknown_modes():
    with pytest.raises(OptionError, match="valid: token_truncate, token_mask"):
        ratio("nope")
