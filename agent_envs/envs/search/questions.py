"""Questions with their gold answers: the embedded ones, and those of Search-R1's and the seed's files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_envs.core.errors import DataError, MissingExtra
from agent_envs.core.spaces import check_text
from agent_envs.core.tasks import TaskSet


@dataclass(frozen=True, slots=True)
class Question:
    """A question, what answers it, and (embedded ones) queries that lead there.

    ``hops``: what an oracle would search for, one query a hop. ``gold``: ids of the passages that hold the
    answer's hops, in the same order.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    data_source: str = ""
    hops: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()


class QuestionSet(TaskSet):
    """Splits of questions."""

    def __init__(self, splits: Mapping[str, Sequence[Question]], source: str = "embedded") -> None:
        self.splits, self.source = tuple(splits), source
        self._lists = {name: tuple(questions) for name, questions in splits.items()}
        self._by_id = {q.id: q for questions in self._lists.values() for q in questions}

    def count(self, split: str) -> int:
        return len(self._lists[split])

    def task_id(self, split: str, index: int) -> str:
        return self._lists[split][self.check_index(split, index)].id

    def task_type(self, task_id: str) -> str:
        return self._by_id[task_id].data_source

    def __getitem__(self, task_id: str) -> Question:
        return self._by_id[task_id]


def load_questions(path: str | Path) -> list[Question]:
    """Questions from a ``.parquet``, ``.jsonl`` or ``.json`` file of Search-R1's or the seed system's form.

    Read are ``question`` and its gold answers (``golden_answers``, ``reward_model.ground_truth.target``, or
    ``ground_truth.target``; a text, a list, or an array), also inside ``env_kwargs`` or ``extra_info``;
    ``data_source`` and ``id``. Rows without a question or an answer are left out.

    Raises:
        DataError: the file cannot be read, or no row is usable; the message names the first fault.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: questions come as {', '.join(_READERS)}")
    found: dict[str, Question] = {}
    fault = "it holds no rows"
    for index, row in enumerate(reader(path)):
        try:
            question = read_question(row, index)
        except ValueError as error:
            fault = f"row {index}: {error}"
            continue
        found[question.id if question.id not in found else f"{question.id}#{index}"] = question
    if not found:
        raise DataError(f"{path}: no usable question; {fault}")
    return [replace(question, id=key) for key, question in found.items()]


def read_question(row: Any, index: int = 0) -> Question:
    """A question from a row; ValueError where it has no text or no answer."""
    if not isinstance(row, Mapping):
        raise ValueError(f"it is a {type(row).__name__}, not an object")
    rows = [
        row,
        *(row[key] for key in ("env_kwargs", "extra_info") if isinstance(row.get(key), Mapping)),
    ]
    text = next((r["question"] for r in rows if isinstance(r.get("question"), str)), "").strip()
    if not text:
        raise ValueError("it has no question")
    answers = next((a for r in rows if (a := _answers(r))), ())
    if not answers:
        raise ValueError("it has no gold answer (golden_answers, or ground_truth.target)")
    source = next((r["data_source"] for r in rows if isinstance(r.get("data_source"), str)), "")
    return checked(Question(str(row.get("id", index)), text, answers, source))


def checked(question: Question) -> Question:
    """The question; ValueError where a text of it cannot be encoded, which no observation could hold."""
    for text in (question.id, question.text, *question.answers, question.data_source):
        check_text(text, "the question or an answer")
    return question


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    model = row.get("reward_model")
    for holder in (row, model if isinstance(model, Mapping) else {}):
        truth = holder.get("ground_truth")
        for value in (holder.get("golden_answers"), _target(truth)):
            if found := _texts(value):
                return found
    return ()


def _target(truth: Any) -> Any:
    return truth.get("target") if isinstance(truth, Mapping) else truth


def _texts(value: Any) -> tuple[str, ...]:
    """A text, a list or an array as texts (FIELD_CASES F048: never taken apart further)."""
    if value is None:
        return ()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str | int | float):
        value = [value]
    return tuple(str(item) for item in value if item is not None and str(item).strip())


def _lines(path: Path) -> Iterator[Any]:
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}, line {number}: {error}") from error


def _whole(path: Path) -> Iterator[Any]:
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {error}") from error
    yield from value if isinstance(value, list) else [value]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot read the questions: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def _parquet(path: Path) -> Iterator[Any]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("questions in a parquet file", "search") from error
    try:
        yield from parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DataError(f"{path}: no parquet file can be read from it: {error}") from error


_READERS = {".parquet": _parquet, ".jsonl": _lines, ".json": _whole}
