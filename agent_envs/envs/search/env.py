"""``AgentEnv/Search-v0``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from agent_envs.core.env import AgentEnv, Outcome
from agent_envs.core.errors import OptionError, RetrieverError, one_of, positive, seconds
from agent_envs.core.profile import Profile
from agent_envs.envs.search import world
from agent_envs.envs.search.actions import read_move
from agent_envs.envs.search.answers import contains_match, exact_match
from agent_envs.envs.search.profile import PROFILE
from agent_envs.envs.search.questions import Question, QuestionSet, checked, load_questions
from agent_envs.retrieval import Found, Retriever, open_retriever

LONGEST_QUERY = 2_000  # characters
LONGEST_ANSWER = 10_000
FORMATS = ("plain", "seed")


class SearchEnv(AgentEnv):
    """Answer a question; passages can be searched first.

    ### Actions
    ``<search>words</search>`` or ``<answer>text</answer>``, text around it allowed. The text is cut at
    the first closing tag; tags match in any case. Two blocks are carried out as if the first stood
    alone and count as invalid; an action without a block observes nothing and is invalid.

    ### Observations
    First the question. After a search ``<information>Doc 1: ...`` with ``topk`` passages
    (``format="seed"``: the JSON form of the seed system), or that nothing was found, or that the
    search failed (never an exception). ``info["query_cut"]``: the query was too long, its beginning
    was searched. ``info["search_error"]``: why the last search failed, "" where it did not.

    ### Rewards
    At the answer 1 for an exact match with one of the gold answers (SQuAD's normalisation), else 0
    (``match="contains"``: a gold answer occurs in it as whole words); times ``reward_scale``. Only the
    agent's own answer is scored.

    ### Start and end
    ``reset(seed=s)`` plays the seed's question; ``options={"task_index": i}`` the i-th of the split;
    ``options={"question": text, "golden_answers": [...]}`` that one. ``terminated`` at an answer,
    ``truncated`` after ``max_steps`` actions.

    ### Arguments
    * ``split``: ``train`` (1,000 questions) or ``test`` (200).
    * ``retriever``: ``bm25`` (default) or ``dense`` over the embedded passages, an index folder
      (``agent-envs retriever index``), a server's URL, or any object with ``search``.
    * ``topk``: 3. ``max_steps``: 4. ``match``: ``exact`` or ``contains``. ``format``: ``plain``, ``seed``.
    * ``data_dir``: a file of questions (its only split has its name), or a folder of such files, each
      a split; None: the embedded questions.
    * ``timeout``: 10, seconds that a server may take for all searches of a group's step.
    * ``reward_scale``, ``render_mode`` (``ansi``).

    ### Data
    Embedded: a made-up world of 2,500 passages and 1,200 questions (``one-hop``, ``two-hop``). Your
    own: Search-R1's or the seed system's parquet and jsonl files.

    ### Differences from the original
    * Two blocks in one action: the first one is carried out and the action counts as invalid.
    * A failing server is an observation and ``info["search_error"]``, after a bounded time, not an exception.
    * A gold answer that normalises to nothing matches nothing.
    * The embedded passages and questions are made up; Wikipedia's index is taken where it is named.

    ### Access
    * reads: the package; the files that ``data_dir`` and ``retriever`` name.
    * writes: embeddings of the embedded passages in the cache folder (``retriever="dense"`` only).
    * executes: nothing (``retriever="dense"`` runs a sentence encoder of an installed package).
    * connects to: the server that ``retriever`` names, with the agent's search words and
      ``$AGENT_ENVS_RETRIEVER_TOKEN``; else nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = PROFILE
    start_options: ClassVar[tuple[str, ...]] = ("question", "golden_answers")
    tasks: QuestionSet

    def __init__(
        self,
        *,
        retriever: str | Retriever = "bm25",
        topk: int = 3,
        max_steps: int | None = 4,
        match: str = "exact",
        format: str = "plain",  # noqa: A002 - the seed system's word for it
        data_dir: str | Path | None = None,
        timeout: float = 10.0,
        **options: Any,
    ) -> None:
        one_of("match", match, _MATCHES)
        one_of("format", format, FORMATS)
        self.topk = positive("topk", topk)
        seconds("timeout", timeout)
        if not isinstance(retriever, str) and not callable(getattr(retriever, "search", None)):
            raise OptionError(
                "retriever must be bm25, dense, an index folder, a URL, or an object with search(), "
                f"got {retriever!r}"
            )
        tasks = (
            world.questions() if data_dir is None else _questions(str(Path(data_dir).absolute()))
        )
        if "split" not in options and "train" not in tasks.splits:
            options["split"] = tasks.splits[0]
        super().__init__(tasks, max_steps=max_steps, **options)
        self.match, self.format = match, format
        self._named, self._timeout = retriever, float(timeout)
        self._question = Question("", "", ())
        self._found: dict[str, Found] = {}
        self._observation = self._error = ""
        self._cut = False
        self._searches = 0

    def _open(self) -> Retriever:
        """What searches, shared by all replicas of the process."""
        if isinstance(self._named, str):
            self._named = open_retriever(self._named, world.documents, timeout=self._timeout)
        return self._named

    @property
    def task(self) -> str:
        return self._question.text

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        return _given(options).id

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> str:
        self._open()  # an unreachable retriever is an error of the first reset, not of a step
        self._question = _given(options) if options else self.tasks[task_id]
        self._found, self._error, self._cut, self._searches = {}, "", False, 0
        self._observation = self._question.text
        return self._observation

    @staticmethod
    def prepare(envs: Sequence[AgentEnv], actions: Sequence[str]) -> None:
        """Search once for all replicas that are about to step, instead of once for each."""
        wanted: dict[tuple[int, int], list[tuple[SearchEnv, str]]] = {}
        for env, action in zip(envs, actions, strict=True):
            assert isinstance(env, SearchEnv)
            move = read_move(action)
            if move.kind == "search":
                query = move.text[:LONGEST_QUERY]
                wanted.setdefault((id(env._open()), env.topk), []).append((env, query))
        for group in wanted.values():
            first = group[0][0]
            found = first._search([query for _, query in group])
            for (env, query), result in zip(group, found, strict=True):
                env._found = {query: result}

    def _search(self, queries: list[str]) -> list[Found]:
        try:
            found = list(self._open().search(queries, self.topk))
            if len(found) != len(queries) or not all(isinstance(one, Found) for one in found):
                raise RetrieverError(
                    f"search() must return one Found per query; {len(found)} results for "
                    f"{len(queries)} queries"
                )
        except Exception as error:  # a user's own retriever must not end an episode
            return [Found(error=f"{type(error).__name__}: {error}")] * len(queries)
        return found

    def _act(self, action: str) -> Outcome:
        move = read_move(action)
        self._error, self._cut = "", False
        if move.kind == "answer":
            won = _MATCHES[self.match](move.text[:LONGEST_ANSWER], self._question.answers)
            self._observation = ""
            return Outcome("", float(won), True, won, move.valid)
        self._observation = self._look_up(move.text) if move.kind else ""
        return Outcome(self._observation, action_valid=move.valid)

    def _look_up(self, text: str) -> str:
        query = text[:LONGEST_QUERY]
        found = self._found.pop(query, None) or self._search([query])[0]
        self._searches += 1
        self._error, self._cut = found.error, found.cut or len(text) > LONGEST_QUERY
        return _FORMAT[self.format](_listing(found))

    def _extra_info(self) -> Mapping[str, Any]:
        return {
            "search_error": self._error, "query_cut": self._cut, "searches": self._searches,
            "question_source": self._question.data_source,
        }  # fmt: skip

    def expert_action(self) -> str:
        """An oracle: it searches for the gold hops (the question, where none are known), then answers."""
        hops = self._question.hops or (self._question.text,)
        if self._searches < len(hops):
            return f"<search>{hops[self._searches]}</search>"
        return f"<answer>{self._question.answers[0]}</answer>"

    def _snapshot(self) -> Any:
        return [self._observation, self._error, self._cut, self._searches]

    def _restore(self, snapshot: Any) -> str:
        self._observation, self._error, self._cut, self._searches = (
            str(snapshot[0]), str(snapshot[1]), bool(snapshot[2]), int(snapshot[3])
        )  # fmt: skip
        return self._observation


def _given(options: Mapping[str, Any]) -> Question:
    """The question of an explicit start; OptionError where it has no text or no answer."""
    question, answers = options.get("question"), options.get("golden_answers")
    if not isinstance(question, str) or not question.strip():
        raise OptionError(f"question must be a text, got {question!r}")
    if isinstance(answers, str):
        answers = [answers]
    if (
        not isinstance(answers, list | tuple)
        or not answers
        or not all(isinstance(a, str) for a in answers)
    ):
        raise OptionError(f"golden_answers must be a text or a list of texts, got {answers!r}")
    try:
        return checked(Question("given", question.strip(), tuple(answers)))
    except ValueError as error:
        raise OptionError(str(error)) from error


_MATCHES = {"exact": exact_match, "contains": contains_match}


def _listing(found: Found) -> str:
    if found.error:
        return f"The search failed: {found.error}\n"
    if not found.hits:
        return "Nothing was found.\n"
    return "".join(
        f"Doc {i}: {hit.document.contents.strip()}\n" for i, hit in enumerate(found.hits, 1)
    )


_FORMAT = {
    "plain": lambda text: f"<information>{text}</information>",
    "seed": lambda text: f"\n<information>{json.dumps({'result': text})}</information>\n",
}


@lru_cache(maxsize=8)
def _questions(path: str) -> QuestionSet:
    """A file's questions, or a folder's ``train``, ``test`` (and other) files."""
    where = Path(path)
    if not where.is_dir():
        return QuestionSet({where.stem: load_questions(where)}, where.name)
    files = sorted(
        p
        for p in where.iterdir()
        if p.suffix.lower() in (".parquet", ".jsonl", ".json") and not p.name.startswith(".")
    )
    if not files:
        raise OptionError(f"{where}: no .parquet, .jsonl or .json file of questions in it")
    splits: dict[str, list[Question]] = {}
    for file in files:
        if file.stem in splits:
            raise OptionError(
                f"{where} holds {file.stem} twice, in different forms: keep one of them"
            )
        splits[file.stem] = load_questions(file)
    return QuestionSet(_distinct(splits), where.name)


def _distinct(splits: Mapping[str, list[Question]]) -> dict[str, list[Question]]:
    """Ids may repeat between files: put the split's name in front."""
    return {
        name: [replace(question, id=f"{name}/{question.id}") for question in questions]
        for name, questions in splits.items()
    }
