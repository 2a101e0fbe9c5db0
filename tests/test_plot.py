"""Learning curves: what is drawn, and one clear line for what cannot be."""

from __future__ import annotations

import json
import logging
import math

import pytest

pytest.importorskip("matplotlib")

from agent_envs.core.errors import DataError, MissingExtra, OptionError
from trainers.trl_adapter import plot
from trainers.trl_adapter.plot import main, plot_runs, read_metrics

PNG = b"\x89PNG\r\n\x1a\n"


def make_run(folder, steps=30, offset=0.0, tail=""):
    folder.mkdir(parents=True)
    lines = []
    for step in range(1, steps + 1):
        row = {"step": step, "update": step // 2, "kl": 0.01 * step, "note": "text"}
        row["success_rate"] = min(1.0, offset + step / steps * 0.8 + 0.1 * math.sin(step))
        if step % 10 == 0:
            rate = min(1.0, offset + step / steps * 0.8)
            row["eval_success_rate"] = rate
            row["eval_interval"] = [max(0, rate - 0.1), min(1, rate + 0.1)]
        lines.append(json.dumps(row))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n" + tail, encoding="utf-8")
    return folder


@pytest.fixture
def drawn(monkeypatch):
    """The axes of the figure that is drawn last."""
    figures = []
    make = plot._figure

    def keep(panels):
        figures.append(make(panels))
        return figures[-1]

    monkeypatch.setattr(plot, "_figure", keep)
    return lambda: figures[-1].axes


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_picture_is_written_with_a_panel_per_metric_and_a_line_per_run(tmp_path, drawn):
    runs = [make_run(tmp_path / "gigpo", offset=0.1), make_run(tmp_path / "grpo")]
    out = plot_runs(runs, tmp_path / "new" / "curves.png")
    assert out == tmp_path / "new" / "curves.png"
    assert out.read_bytes().startswith(PNG)
    training, evaluation = drawn()
    assert (training.get_ylabel(), evaluation.get_ylabel()) == ("success rate", "eval success rate")
    assert training.get_xlabel() == "step"
    assert labels(training) == labels(evaluation) == ["gigpo", "grpo"]
    assert len(training.lines) == 4  # raw and average
    assert len(evaluation.lines) == len(evaluation.collections) == 2  # with bands
    assert training.get_ylim() == (-0.03, 1.03)


def test_command_writes_into_the_first_run_and_says_where(tmp_path, capsys):
    run = make_run(tmp_path / "gigpo")
    assert main([str(run), str(make_run(tmp_path / "grpo")), "--x", "update"]) == 0
    assert capsys.readouterr().out == f"{run / 'curves.png'}\n"
    assert (run / "curves.png").read_bytes().startswith(PNG)


def test_metrics_file_itself_is_a_run_too_and_counts_once(tmp_path, drawn):
    run = make_run(tmp_path / "gigpo")
    out = tmp_path / "curves.svg"
    options = ["--metric", "kl", "kl", "--out", str(out)]
    assert main([str(run), str(run / "metrics.jsonl"), *options]) == 0
    assert out.read_text().lstrip().startswith("<?xml")
    assert [labels(axes) for axes in drawn()] == [["gigpo"]]


def test_moving_average_is_of_the_last_values(tmp_path, drawn):
    run = make_run(tmp_path / "run", steps=4)
    plot_runs([run], tmp_path / "a.png", ["kl"], window=2)
    raw, average = drawn()[0].lines
    assert raw.get_ydata() == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert average.get_ydata() == pytest.approx([0.01, 0.015, 0.025, 0.035])
    plot_runs([run], tmp_path / "a.png", ["kl"], window=1)
    assert len(drawn()[0].lines) == 1


@pytest.mark.parametrize("tail", ['{"step": 31, "succ', "[1, 2]\n", '{"note": "\udcc3'])
def test_torn_line_is_skipped_with_a_warning(tmp_path, caplog, tail):
    run = make_run(tmp_path / "run", steps=3)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(tail.encode("utf-8", "surrogateescape"))
    with caplog.at_level(logging.WARNING):
        rows = read_metrics(run)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert "line 4: skipped" in caplog.text


def test_resumed_run_overwrites_the_steps_it_repeats(tmp_path, drawn, caplog):
    run = make_run(tmp_path / "run", steps=3, tail='{"step": 4, "k')
    again = "\n".join(json.dumps({"step": step, "kl": 9.0}) for step in (3, 4))
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n" + again)
    plot_runs([run], tmp_path / "a.png", ["kl"], window=1)
    assert "line 4" in caplog.text
    assert drawn()[0].lines[0].get_ydata() == pytest.approx([0.01, 0.02, 9.0, 9.0])


def test_missing_odd_and_infinite_values_are_gaps(tmp_path, drawn):
    folder = tmp_path / "run"
    folder.mkdir()
    rows = [
        {"step": 1, "eval_success_rate": 0.5, "eval_interval": [0.4]},
        {"step": 2, "eval_success_rate": None},
        {"step": 3, "eval_success_rate": math.nan},
        {"step": 4, "eval_success_rate": "high"},
        {"eval_success_rate": 1.0},
        {"step": 6, "eval_success_rate": 0.7, "eval_interval": [0.6, 0.8]},
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    plot_runs([folder], tmp_path / "a.png")
    (axes,) = drawn()
    assert axes.lines[0].get_xdata().tolist() == [1, 6]


def test_runs_of_the_same_name_are_told_apart_by_their_parents(tmp_path, drawn):
    same = [make_run(tmp_path / name / "seed0") for name in ("gigpo", "grpo")]
    deep = [make_run(tmp_path / name / "x" / "run") for name in ("a", "b")]
    runs = [*same, *deep, make_run(tmp_path / "_other$")]
    plot_runs(runs, tmp_path / "a.png", ["kl"])
    expected = ["gigpo/seed0", "grpo/seed0", "a/x/run", "b/x/run", r" _other\$"]
    assert labels(drawn()[0]) == expected


def test_a_run_without_a_metric_leaves_the_colours_of_the_others(tmp_path, drawn):
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "metrics.jsonl").write_text('{"step": 1, "success_rate": 0.5}\n')
    plot_runs([bare, make_run(tmp_path / "full")], tmp_path / "a.png", window=1)
    training, evaluation = drawn()
    assert labels(training) == ["bare", "full"]
    assert labels(evaluation) == ["full"]
    assert training.lines[1].get_color() == evaluation.lines[0].get_color()


def test_many_runs_keep_different_lines(tmp_path, drawn):
    runs = [make_run(tmp_path / f"r{i}", steps=2) for i in range(12)]
    plot_runs(runs, tmp_path / "a.png", ["kl"], window=1)
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn()[0].lines}) == 12


def error_of(capsys, *arguments):
    assert main([*map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_unknown_metric_names_those_there_nearest_first(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    error = error_of(capsys, run, "--metric", "sucess_rate")
    assert "unknown metric 'sucess_rate'; these runs have: success_rate, eval_success_rate" in error
    assert "kl" in error
    assert "note" not in error  # no number
    assert "eval_interval" not in error
    with pytest.raises(OptionError, match="success_rate"):
        plot_runs([run], tmp_path / "a.png", ["sucess_rate"])


def test_absent_run_lists_the_runs_there(tmp_path, capsys):
    make_run(tmp_path / "gigpo")
    make_run(tmp_path / "grpo")
    error = error_of(capsys, tmp_path / "gipgo")
    assert f"no such run: {tmp_path / 'gipgo'}; runs in {tmp_path}: gigpo, grpo" in error
    assert "runs in" in error_of(capsys, tmp_path / "no" / "such")
    assert "gigpo, grpo" in error_of(capsys, tmp_path)  # the folder of the runs


def test_folder_without_metrics_lists_its_files(tmp_path, capsys):
    (tmp_path / "config.yaml").touch()
    error = error_of(capsys, tmp_path)
    assert f"no metrics.jsonl in {tmp_path}; files in {tmp_path}: config.yaml" in error


def test_run_without_rows_says_so(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").touch()
    assert "no rows yet (0 bytes)" in error_of(capsys, tmp_path)
    with pytest.raises(DataError, match="no rows"):
        read_metrics(tmp_path)


def test_rows_without_the_default_metrics_or_the_axis(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "kl": 0.1}\n')
    assert "name a metric of these runs: kl" in error_of(capsys, tmp_path)
    assert "other x axes: step" in error_of(capsys, tmp_path, "--x", "update")


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--out", "a.docx"], ".png, .pdf, .svg"), (["--window", "0"], "window must be a positive")],
)
def test_wrong_options_name_the_right_ones(tmp_path, capsys, options, says):
    assert says in error_of(capsys, make_run(tmp_path / "run"), *options)


def test_help_teaches(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "runs/gigpo runs/grpo" in capsys.readouterr().out


def test_absent_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"agent-envs\[train\]"):
        plot_runs([make_run(tmp_path / "run")], tmp_path / "a.png")


def test_as_a_module_it_leaves_pyplot_alone(tmp_path, run_python):
    run = make_run(tmp_path / "run")
    code = (
        "import sys\nfrom trainers.trl_adapter.plot import main\n"
        "assert 'matplotlib' not in sys.modules\n"
        "code = main(sys.argv[1:])\n"
        "assert 'matplotlib.pyplot' not in sys.modules and 'torch' not in sys.modules\n"
        "sys.exit(code)"
    )
    done = run_python(code, str(run))
    assert (done.returncode, done.stderr) == (0, "")
