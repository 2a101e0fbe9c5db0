"""``python -m trainers.trl_adapter.evaluate``: what it refuses, before any model is loaded."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")

from trainers.trl_adapter.evaluate import main


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "it has no config.yaml" in capsys.readouterr().err


def test_a_missing_model_is_answered_with_those_that_are_there(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("algorithm: gigpo\n")
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "checkpoint-8" / "config.json").write_text("{}")
    assert main([str(tmp_path), "--model", "final"]) == 2
    assert "there are: checkpoint-8" in capsys.readouterr().err
