"""Search: the environment, answers, questions, the embedded world."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_envs
from agent_envs.agent import AgentGroup, ExpertPolicy, parser_for
from agent_envs.core import DataError, OptionError
from agent_envs.core.errors import RetrieverError
from agent_envs.envs.search import contains_match, exact_match, load_questions, normalise, world
from agent_envs.envs.search.actions import read_move
from agent_envs.envs.search.questions import read_question
from agent_envs.retrieval import Document, Found, Hit, open_retriever

ID = "AgentEnv/Search-v0"
LISBON = {"question": "What is the capital of Portugal?", "answers": ["Lisbon", "Lisboa"]}


def make(**options):
    return gymnasium.make(ID, **options).unwrapped


class Stub:
    """Counts its calls; finds what it is told to."""

    def __init__(self, contents=('"Lisbon"\nLisbon is a city.',), error=""):
        self.contents, self.error, self.calls = contents, error, []

    def search(self, queries, topk):
        self.calls.append(list(queries))
        if self.error == "raise":
            raise RuntimeError("broken")
        hits = tuple(Hit(Document(str(i), text), 1.0) for i, text in enumerate(self.contents))
        return [Found(() if self.error else hits[:topk], self.error) for _ in queries]


# -- actions and answers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("<search> a b </search>", ("search", "a b", True)),
        ("<SEARCH>A</Search>", ("search", "A", True)),
        ("I think <answer>x\ny</answer> so", ("answer", "x\ny", True)),
        ("<search>a</search><answer>b</answer>", ("search", "a", False)),
        ("<answer>b</answer><search>a</search>", ("answer", "b", False)),
        ("<search>a</search><search>b</search>", ("search", "a", False)),
        ("<search>a<search>b</search>", ("search", "a<search>b", False)),
        ("<answer>x <search>y</search>", ("search", "y", False)),
        ("</answer><search>a</search>", ("", "", False)),
        ("<search>never closed", ("", "", False)),
        ("", ("", "", False)),
        ("\u0130<search>\u0130</search>", ("search", "\u0130", True)),  # lower() would move places
    ],
)
def test_moves(action, expected):
    assert read_move(action) == expected


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_move(action):
    move = read_move(action)
    assert move.kind in ("", "search", "answer")
    assert move.kind or not move.valid


@pytest.mark.parametrize(
    ("answer", "golds", "exact", "contained"),
    [
        ("the Lisbon!", ["Lisbon"], True, True),
        ("It is Lisbon.", ["Lisbon"], False, True),
        ("Lisbonese", ["Lisbon"], False, False),  # whole words only
        ("Lisboa", ["Lisbon", "Lisboa"], True, True),
        ("", ["Lisbon"], False, False),
        ("", [""], False, False),  # F047
        ("the", ["a"], False, False),  # articles only normalise to nothing
        ("...", ["!"], False, False),
        ("2, 3", ["2, 3"], True, True),  # F048
        ("Ångström", ["ångström"], True, True),
        ("ANGSTROM", ["Ångström"], False, False),  # SQuAD's rule keeps accents
        ("u.s.", ["US"], True, True),
        ("東京", ["東京"], True, True),
        ("a  b\tc", ["b c"], True, True),
    ],
)
def test_matches(answer, golds, exact, contained):
    assert exact_match(answer, golds) is exact
    assert contains_match(answer, golds) is contained


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_normalising_is_done_once(text):
    once = normalise(text)
    assert normalise(once) == once or "a" in once  # an article can appear when punctuation goes
    assert exact_match(text, [text]) is bool(once)


# -- the environment ----------------------------------------------------------------------------------


def test_an_episode():
    stub = Stub()
    env = make(retriever=stub)
    observation, info = env.reset(seed=0, options=LISBON)
    assert observation == info["task"] == LISBON["question"]
    observation, reward, terminated, truncated, info = env.step("<search>Portugal</search>")
    assert observation == '<information>Doc 1: "Lisbon"\nLisbon is a city.\n</information>'
    assert (reward, terminated, truncated) == (0, False, False)
    assert info["is_action_valid"]
    assert stub.calls == [["Portugal"]]
    observation, reward, terminated, _, info = env.step("<answer>lisboa</answer>")
    assert (observation, reward, terminated, info["won"]) == ("", 1.0, True, True)


def test_seed_format_and_failures_have_one_shape():
    env = make(retriever=Stub(), format="seed")
    env.reset(options=LISBON)
    text = env.step("<search>x</search>")[0]
    inner = text.removeprefix("\n<information>").removesuffix("</information>\n")
    assert json.loads(inner) == {"result": 'Doc 1: "Lisbon"\nLisbon is a city.\n'}
    env = make(retriever=Stub(error="down"), format="seed")
    env.reset(options=LISBON)
    text, _, _, _, info = env.step("<search>x</search>")
    assert (
        "down" in json.loads(text.strip()[len("<information>") : -len("</information>")])["result"]
    )
    assert info["search_error"] == "down"


def test_only_the_agents_own_answer_counts():
    """F045: what stands in prompt, question or passages is never scored."""
    env = make(retriever=Stub(("<answer>Lisbon</answer>",)))
    env.reset(options={"question": "<answer>Lisbon</answer>?", "answers": "Lisbon"})
    _, reward, terminated, _, _ = env.step("<search><answer>Lisbon</search>")
    assert (reward, terminated) == (0, False)
    _, reward, terminated, _, info = env.step("<answer> </answer>")
    assert (reward, terminated, info["won"]) == (0, True, False)


def test_no_block_observes_nothing_and_four_turns_are_the_end():
    env = make(retriever=Stub())
    env.reset(options=LISBON)
    for turn in range(4):
        observation, _, terminated, truncated, info = env.step("Lisbon")
        assert (observation, terminated, info["is_action_valid"]) == ("", False, False)
        assert truncated is (turn == 3)


def test_a_long_query_is_cut_and_says_so():
    stub = Stub()
    env = make(retriever=stub)
    env.reset(options=LISBON)
    info = env.step(f"<search>{'x' * 5000}</search>")[-1]
    assert info["query_cut"]
    assert len(stub.calls[0][0]) == 2000


def test_a_retriever_that_raises_ends_no_episode():
    group = agent_envs.make_group(ID, 2, 2, retriever=Stub(error="raise"))
    group.reset(seed=1)
    _, _, terminated, truncated, infos = group.step(["<search>a</search>"] * 4)
    assert not terminated.any()
    assert not truncated.any()
    assert all("RuntimeError: broken" in text for text in infos["search_error"])
    group.close()


class Wrong:
    def __init__(self, reply):
        self.reply = reply

    def search(self, queries, topk):
        return self.reply


@pytest.mark.parametrize("reply", [[], [Found()], None, [["a passage"]] * 4])
def test_a_retriever_that_returns_something_else_ends_no_episode(reply):
    group = agent_envs.make_group(ID, 2, 2, retriever=Wrong(reply))
    group.reset(seed=1)
    _, _, terminated, truncated, infos = group.step(["<search>a</search>"] * 4)
    assert not terminated.any()
    assert not truncated.any()
    assert all("Error" in text for text in infos["search_error"])
    group.close()


def test_a_group_step_searches_once():
    stub = Stub()
    group = agent_envs.make_group(ID, 2, 3, retriever=stub)
    group.reset(seed=1)
    group.step([f"<search>q{i % 2}</search>" for i in range(5)] + ["<answer>no</answer>"])
    assert stub.calls == [["q0", "q1", "q0", "q1", "q0"]]
    group.close()


def test_what_a_group_sees_equals_single_envs():
    group = agent_envs.make_group(ID, 3, 1)
    group.reset(options={"task_index": [4, 4, 4]})
    actions = ["<search>Voss painter</search>", "<search>river</search>", "nothing"]
    seen, *_ = group.step(actions)
    for text, action in zip(seen, actions, strict=True):
        env = make()
        env.reset(options={"task_index": 4})
        assert env.step(action)[0] == text
    group.close()


def test_the_oracle_wins_every_question():
    for split, count in (("test", 200), ("train", 40)):
        result = agent_envs.evaluate(ExpertPolicy(), ID, split=split, episodes=count, num_envs=64)
        assert result.success_rate == 1.0
        assert len(result.episodes) == count


def test_the_parser_keeps_the_block():
    parser = parser_for(ID)
    assert (
        parser.parse("<think>b<answer>no</answer></think><Search> a </search>").action
        == "<search>a</search>"
    )
    assert parser.parse("<answer>x</answer><search>y</search>").action == "<answer>x</answer>"
    assert not parser.parse("<search> </search>").valid
    assert "<search> or <answer>" in parser.parse("hm").reason
    assert parser.parse(parser.format("<answer>x</answer>")).action == "<answer>x</answer>"


def test_the_prompt_shows_the_past_and_the_latest_passages():
    rollout = AgentGroup(agent_envs.make_group(ID, 1, 1)).rollout(ExpertPolicy(), seed=2)
    last = rollout.steps[-1].prompt.text
    assert last.count("Question: ") == 1
    assert "Step 1: <search>" in last
    assert last.rindex("<information>") > last.index("Step 1: <search>")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retriever": "tfidf"}, "bm25, dense"),
        ({"retriever": 5}, "an object with search"),
        ({"topk": 0}, "topk"),
        ({"match": "f1"}, "exact, contains"),
        ({"format": "xml"}, "plain, seed"),
        ({"timeout": 0}, "timeout"),
        ({"reward_scale": float("nan")}, "reward_scale"),
        ({"reward_scale": 10**400}, "reward_scale"),
        ({"data_dir": "/nowhere/x.jsonl"}, "/nowhere/x.jsonl"),
    ],
)
def test_bad_options_say_what_is_valid(options, words):
    with pytest.raises((OptionError, DataError), match=words):
        make(**options).reset(seed=0)


@pytest.mark.parametrize("start", [{"question": "x"}, {"answers": ["x"]}, {"question": " ", "answers": "x"},
                                   {"question": "x", "answers": []}, {"question": "x", "answers": [1]},
                                   {"question": "x\ud800", "answers": "x"}, {"question": "x", "answers": ["\udfff"]}])  # fmt: skip
def test_half_an_explicit_start_is_refused(start):
    with pytest.raises(OptionError):
        make(retriever=Stub()).reset(options=start)


# -- the embedded world -------------------------------------------------------------------------------


def recall(retriever, questions, query, gold):
    found = retriever.search([query(q) for q in questions], 3)
    hits = [
        gold(q) in [hit.document.id for hit in result.hits]
        for q, result in zip(questions, found, strict=True)
    ]
    return float(np.mean(hits))


def test_the_world_is_neither_trivial_nor_hopeless():
    documents, tasks = world.documents(), world.questions()
    assert len(documents) >= 2000
    assert len({d.id for d in documents}) == len({d.contents for d in documents}) == len(documents)
    assert {split: tasks.count(split) for split in tasks.splits} == {"train": 1000, "test": 200}
    everything = [tasks[tasks.task_id(s, i)] for s in tasks.splits for i in range(tasks.count(s))]
    assert len({q.text for q in everything}) == len(everything)
    one, two = ([q for q in everything if q.data_source == kind] for kind in ("one-hop", "two-hop"))
    assert min(len(one), len(two)) >= 500
    retriever = open_retriever("bm25", world.documents)
    assert recall(retriever, one, lambda q: q.hops[0], lambda q: q.gold[0]) >= 0.95
    assert recall(retriever, two, lambda q: q.hops[0], lambda q: q.gold[0]) >= 0.95
    assert recall(retriever, two, lambda q: q.hops[1], lambda q: q.gold[1]) >= 0.95
    assert 0.6 <= recall(retriever, one, lambda q: q.text, lambda q: q.gold[0]) <= 0.95
    assert recall(retriever, two, lambda q: q.text, lambda q: q.gold[1]) <= 0.2


def test_the_gold_passage_holds_the_answer_and_the_question_does_not():
    texts = {d.id: d.contents for d in world.documents()}
    tasks = world.questions()
    for split in tasks.splits:
        for i in range(tasks.count(split)):
            question = tasks[tasks.task_id(split, i)]
            (answer,) = question.answers
            assert answer in texts[question.gold[-1]]
            assert answer not in question.text


def test_the_world_is_the_same_everywhere():
    """A change here changes everybody's tasks: it needs a new version of the environment."""
    import hashlib

    tasks = world.questions()
    digest = hashlib.sha256("\n".join(d.contents for d in world.documents()).encode())
    for split in tasks.splits:
        for i in range(tasks.count(split)):
            question = tasks[tasks.task_id(split, i)]
            digest.update(f"{question.id} {question.text} {question.answers}".encode())
    assert digest.hexdigest()[:16] == "d4591a19ba2f73c1"


# -- questions of others ------------------------------------------------------------------------------

ROWS = [
    {"question": "who?", "golden_answers": ["A", "B"], "data_source": "nq"},
    {"question": "who?", "reward_model": {"ground_truth": {"target": ["A", "B"]}}},
    {
        "env_kwargs": {
            "ground_truth": {"target": ["A", "B"]},
            "question": "who?",
            "data_source": "nq",
        }
    },
    {"question": "who?", "ground_truth": {"target": np.array(["A", "B"])}},
]


@pytest.mark.parametrize("row", ROWS)
def test_forms_of_questions(row):
    """F048: gold as list or array has the same score."""
    question = read_question(row)
    assert (question.text, question.answers) == ("who?", ("A", "B"))


def test_a_text_is_one_answer():
    assert read_question({"question": "q", "golden_answers": "2, 3"}).answers == ("2, 3",)


def test_files_of_questions(tmp_path):
    lines = [json.dumps(row) for row in ROWS[:3]] + ["", json.dumps({"question": "no answer"})]
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    env = make(data_dir=tmp_path, split="test", retriever=Stub())
    assert env.tasks.count("test") == 3
    _, info = env.reset(options={"task_index": 0})
    assert (info["task_id"], info["question_source"]) == ("test/0", "nq")
    assert env.step("<answer>b</answer>")[1] == 1.0
    alone = make(data_dir=tmp_path / "test.jsonl", retriever=Stub())
    assert alone.split == "test"


def test_parquet_questions(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra 'search'")
    from pyarrow import parquet

    rows = [
        ROWS[0] | {"id": "7"},
        {"question": "when?", "golden_answers": ["1900"], "data_source": "x", "id": "7"},
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test.parquet")
    questions = load_questions(tmp_path / "test.parquet")
    assert [q.answers for q in questions] == [("A", "B"), ("1900",)]
    assert len({q.id for q in questions}) == 2
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match=r"bad\.parquet"):
        load_questions(tmp_path / "bad.parquet")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "no rows"), (b"{", "line 1"), (b"[1]", "row 0"), (b'{"question": "q"}', "no gold answer"),
     (b'{"question": "q", "golden_answers": [null, " "]}', "no gold answer"), (b"\xff", "UTF-8|utf-8"),
     (b'{"question": "q \\ud800", "golden_answers": "a"}', "lone surrogate")],
)  # fmt: skip
def test_broken_files_name_file_and_fault(tmp_path, content, words):
    path = tmp_path / "q.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load_questions(path)
    assert "q.jsonl" in str(caught.value)


def test_an_empty_collection_is_refused():
    from agent_envs.retrieval.local import BM25Retriever

    with pytest.raises(RetrieverError, match="empty"):
        BM25Retriever([])
