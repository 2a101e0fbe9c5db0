"""AppWorld's world: store, declarations, apps. No recording is needed."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_envs.envs.appworld.api import NEUTRAL, TRADEMARKS, App, Apps
from agent_envs.envs.appworld.build import build_world, make_apps, supervisors
from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.fields import Id, Text, mismatch
from agent_envs.envs.appworld.store import Overlay, World

APPS = make_apps()
ENDPOINTS = [(app, name) for app in APPS.names() for name in APPS.functions(app)]


@cache
def world(seed: int = 1, brand: str = "real") -> World:
    return build_world(seed, brand)


@cache
def someone() -> int:
    return supervisors(world())[1]


class Agent:
    """Calls APIs for one person; logs in where needed."""

    def __init__(self, overlay: Overlay | None = None, person: int = 0, apps: Apps = APPS) -> None:
        self.overlay = overlay or Overlay(world())
        self.person = person or someone()
        self.apps = apps
        self.tokens: dict[str, str] = {}

    def token(self, app: str) -> str:
        if app not in self.tokens:
            passwords = {
                row["account_name"]: row["password"]
                for row in self.call("supervisor", "show_account_passwords")
            }
            me = self.call("supervisor", "show_profile")
            username = me["phone_number" if app == "phone" else "email"]
            answer = self.call(app, "login", username=username, password=passwords[app])
            self.tokens[app] = answer["access_token"]
        return self.tokens[app]

    def call(self, app: str, name: str, /, **arguments):
        endpoint = self.apps.endpoint(app, name)
        if endpoint.auth and "access_token" not in arguments:
            arguments["access_token"] = self.token(app)
        for parameter in endpoint.required:
            other = parameter.removesuffix("_access_token")
            if other != parameter and parameter not in arguments:
                arguments[parameter] = self.token(other)
        answer = self.apps.call(self.overlay, self.person, app, name, arguments)
        assert mismatch(endpoint.returns, answer, f"{app}.{name}") is None
        json.dumps(answer, allow_nan=False)
        return answer

    def refused(self, app: str, name: str, /, **arguments) -> ApiError:
        before = self.overlay.changes()
        with pytest.raises(ApiError) as caught:
            self.call(app, name, **arguments)
        assert self.overlay.changes() == before
        return caught.value


@pytest.fixture
def agent() -> Agent:
    return Agent()


# the store


def test_an_overlay_holds_only_what_differs():
    base = World(0, "2024-01-01T00:00:00", {"a.rows": {1: {"id": 1, "x": 5}, 4: {"id": 4, "x": 5}}})
    overlay = Overlay(base)
    assert overlay.changes() == {}
    assert overlay.insert("a.rows", x=7)["id"] == 5
    overlay.update("a.rows", 1, x=6)
    overlay.delete("a.rows", 4)
    assert [row["id"] for row in overlay.rows("a.rows")] == [1, 5]
    assert overlay.changes()["a.rows"] == {5: {"id": 5, "x": 7}, 1: {"id": 1, "x": 6}, 4: None}
    assert [row["id"] for row in overlay.where("a.rows", x=7)] == [5]
    assert overlay.where("a.rows", x=5) == []
    overlay.update("a.rows", 1, x=5)
    overlay.delete("a.rows", 5)
    assert overlay.changes() == {"a.rows": {4: None}}
    assert overlay.insert("a.rows", x=8)["id"] == 6, "an id is never used twice"
    with pytest.raises(KeyError, match=re.escape("a.rows")):
        overlay.get("b.rows", 1)
    with pytest.raises(KeyError):
        overlay.update("a.rows", 4, x=1)
    with pytest.raises(KeyError):
        overlay.update("a.rows", 1, y=1)


STEPS = st.lists(
    st.tuples(st.sampled_from("iudf"), st.integers(1, 9), st.integers(0, 2)), max_size=25
)


@given(STEPS)
def test_the_overlay_agrees_with_a_plain_dict(steps):
    rows = {i: {"id": i, "x": i % 3} for i in (1, 2, 5)}
    base = World(0, "2024-01-01T00:00:00", {"a.rows": rows})
    overlay, model = Overlay(base), dict(rows)
    for kind, number, x in steps:
        if kind == "i":
            row = overlay.insert("a.rows", x=x)
            assert row["id"] not in model
            model[row["id"]] = row
        elif kind == "f":
            parent, overlay = overlay, overlay.fork()
            before = parent.snapshot()
            overlay.insert("a.rows", x=9)
            assert parent.snapshot() == before
            overlay = Overlay.restore(base, json.loads(json.dumps(before)))
        elif number in model and kind == "u":
            model[number] = dict(overlay.update("a.rows", number, x=x))
        elif number in model:
            overlay.delete("a.rows", number)
            del model[number]
    assert list(overlay.rows("a.rows")) == [model[i] for i in sorted(model)]
    for x in range(3):
        want = [model[i] for i in sorted(model) if model[i]["x"] == x]
        assert overlay.where("a.rows", x=x) == want
    differs = {i for i in rows.keys() | model.keys() if rows.get(i) != model.get(i)}
    assert overlay.changes().get("a.rows", {}).keys() == differs


# the world


def test_a_world_is_a_function_of_its_seed_in_any_process(run_python):
    code = "from agent_envs.envs.appworld.build import build_world; print(build_world(1).digest())"
    digests = {run_python(code, PYTHONHASHSEED=str(i)).stdout.strip() for i in range(2)}
    assert digests == {world().digest()}
    assert world(2).digest() != world().digest()


def test_a_world_survives_pickling():
    import pickle

    assert pickle.loads(pickle.dumps(world())).digest() == world().digest()


def test_the_world_is_of_the_promised_size():
    people = world().tables["people.people"]
    assert 24 <= len(people) <= 40
    assert len({row["email"] for row in people.values()}) == len(people)
    assert len({row["phone_number"] for row in people.values()}) == len(people)
    assert 2000 <= sum(len(rows) for rows in world().tables.values()) <= 20_000
    assert len(supervisors(world())) >= 8


@pytest.mark.parametrize("seed", range(1, 6))
def test_rows_refer_to_rows_that_exist(seed):
    """Every field called <thing>_id points at a person (owner_id...) or a row of the same app."""
    tables = world(seed).tables
    people = tables["people.people"]
    now = world(seed).now
    for name, rows in tables.items():
        app = name.partition(".")[0]
        for row in rows.values():
            for key, value in row.items():
                if key.endswith("_id") and value is not None:
                    plural = f"{app}.{key.removesuffix('_id')}s"
                    target = tables.get(plural, people)
                    assert value in target, (name, row, key)
                if key.endswith("_at") and isinstance(value, str):
                    assert value < now, (name, row, key)


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_world_has_what_tasks_need(seed):
    kinds = {row["kind"] for row in world(seed).tables["people.relations"].values()}
    assert kinds >= {"friend", "coworker", "manager", "roommate"}
    relations = world(seed).tables["people.relations"].values()
    for person in supervisors(world(seed)):
        assert sum(row["person_id"] == person for row in relations) >= 4


# declarations


def test_there_is_enough_to_do():
    assert len(APPS.names()) >= 9
    assert len(ENDPOINTS) >= 120


@pytest.mark.parametrize(("app", "name"), ENDPOINTS, ids=lambda x: x)
def test_every_api_is_documented_whole(app, name):
    doc = APPS.doc(app, name)
    assert doc["path"].startswith(f"/{app}/")
    assert doc["method"] in {"GET", "POST", "PATCH", "DELETE", "PUT"}
    assert len(doc["description"]) > 12
    assert doc["description"].endswith(".")
    required = [parameter["required"] for parameter in doc["parameters"]]
    for parameter in doc["parameters"]:
        assert parameter["description"]
        assert not parameter["required"] or parameter["default"] is None
    plain = [p["required"] for p in doc["parameters"] if p["name"] != "access_token"]
    assert plain == sorted(plain, reverse=True)
    if APPS.endpoint(app, name).auth:
        assert doc["parameters"][-1]["name"] == "access_token"
        assert required[-1]
    assert doc["response_schemas"]["success"] not in ({}, None)
    schema = APPS.schema(app, name)["function"]
    assert schema["name"] == f"{app}__{name}"
    assert list(schema["parameters"]["properties"]) == [p["name"] for p in doc["parameters"]]
    for parameter in APPS.endpoint(app, name).params.values():
        assert parameter.required or parameter.kind.refuse(parameter.default) is None


def test_routes_are_unique():
    routes = [(APPS.doc(*e)["method"], APPS.doc(*e)["path"]) for e in ENDPOINTS]
    assert sorted({route for route in routes if routes.count(route) > 1}) == []


def test_a_declaration_without_words_for_a_parameter_is_refused():
    app = App("toy", "A toy.")
    with pytest.raises(KeyError, match="size"):

        @app.api("GET", "/toys")
        def show_toys(ctx, *, size: Id):
            """Show toys."""

    with pytest.raises(TypeError):

        @app.api("GET", "/balls")
        def show_balls(ctx, *, size: Text | Id):
            """Show balls.

            size: how large
            """


# calls


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def likely(parameter) -> st.SearchStrategy:
    """Values near those that an API takes, so that its body runs too."""
    kind = parameter.kind
    if parameter.name.endswith("access_token"):
        return st.just("?")  # stands for a real token
    one = {
        str: st.sampled_from(kind.choices or ("a", "~/notes", "2024-05-01", "x@y.com", "07:30")),
        int: st.integers(-1, 60),
        float: st.floats(-1, 500, width=16),
        bool: st.booleans(),
        object: st.text(max_size=3),
    }[kind.base]
    if any(getattr(rule, "example", None) for rule in kind.rules):
        rule = next(rule for rule in kind.rules if getattr(rule, "example", None))
        one = st.just(rule.example) | one
    return (st.lists(one, max_size=2) if kind.many else one) | JSON_VALUES


@st.composite
def calls(draw):
    app, name = draw(st.sampled_from(ENDPOINTS))
    arguments = {}
    for parameter in APPS.endpoint(app, name).params.values():
        if parameter.required or draw(st.booleans()):
            arguments[parameter.name] = draw(likely(parameter))
    if draw(st.integers(0, 9)) == 0:
        arguments[draw(st.text())] = draw(JSON_VALUES)
    return app, name, arguments


@settings(max_examples=400, deadline=None)
@given(st.lists(calls(), min_size=1, max_size=12))
def test_any_arguments_end_in_a_value_or_an_api_error(sequence):
    agent = Agent()
    for app, name, arguments in sequence:
        for key, value in arguments.items():
            if value == "?":
                other = key.removesuffix("_access_token")
                arguments[key] = agent.token(app if key == "access_token" else other)
        before = agent.overlay.snapshot()
        try:
            agent.call(app, name, **arguments)
        except ApiError as error:
            assert error.status in (401, 404, 409, 422)
            assert 0 < len(error.message) < 3000
            error.message.encode()
            after = agent.overlay.snapshot()
            assert after["changed"] == before["changed"], (app, name, arguments)
        agent.tokens.clear()  # a logout may have ended them
    restored = Overlay.restore(world(), json.loads(json.dumps(agent.overlay.snapshot())))
    assert restored.snapshot() == agent.overlay.snapshot()


@pytest.mark.parametrize("arguments", [None, [], "x", 3, {3: 4}, {"app_name": None}, {"\ud800": 1}])
def test_hostile_arguments(arguments):
    with pytest.raises(ApiError):
        APPS.call(Overlay(world()), someone(), "api_docs", "show_api_descriptions", arguments)


def test_no_call_changes_the_base():
    agent = Agent(Overlay(build_world(1)))
    for app, name in ENDPOINTS:
        if APPS.endpoint(app, name).required <= {"access_token"} and name != "logout":
            try:
                answer = agent.call(app, name)
            except ApiError:
                continue
            if isinstance(answer, list):
                answer.append("spoilt")
                for item in answer[:-1]:
                    if isinstance(item, dict):
                        for value in item.values():
                            if isinstance(value, list):
                                value.append("spoilt")
    assert agent.overlay.world.digest() == world().digest()


def test_unknown_names_get_near_ones(agent):
    def message(app, name, **arguments):
        with pytest.raises(ApiError) as caught:
            APPS.call(agent.overlay, someone(), app, name, arguments)
        return caught.value.status, caught.value.message

    status, text = message("phoen", "login")
    assert status == 404
    assert text == "No app named 'phoen' found. Did you mean phone?"
    status, text = message("phone", "show_alarm")
    assert status == 404
    assert text.startswith("No API named 'show_alarm' found in the phone app.")
    assert "show_alarms" in text
    status, text = message("phone", "login", user_name="a", password=5)
    assert status == 422
    assert text.startswith("Validation error. Reason: \n")
    assert "user_name: unknown parameter. Did you mean username?" in text
    assert "username: missing" in text
    assert "password: it must be of type string, got 5" in text


def test_tokens_expire_after_20_to_30_minutes(agent):
    token = agent.token("phone")
    agent.overlay.advance(19 * 60)
    assert agent.call("phone", "show_profile", access_token=token)
    agent.overlay.advance(12 * 60)
    error = agent.refused("phone", "show_profile", access_token=token)
    assert error.status == 401
    assert error.message == (
        "You are either not authorized to access this phone API endpoint or your access token is"
        " missing, invalid or expired."
    )
    agent.tokens.clear()
    assert agent.token("phone") != token
    assert agent.call("phone", "show_profile")


def test_a_token_is_of_one_app_and_ends_with_logout(agent):
    for token in (agent.token("gmail"), "", "x", None, 7):
        assert agent.refused("phone", "show_alarms", access_token=token).status == 401
    token = agent.token("phone")
    agent.call("phone", "logout")
    assert agent.refused("phone", "show_alarms", access_token=token).status == 401
    assert agent.refused("phone", "login", username="x", password="y").status == 401


def test_forks_log_in_alike(agent):
    fork = Agent(agent.overlay.fork())
    assert fork.token("phone") == agent.token("phone")


def test_pages_are_whole_and_sorted(agent):
    found = []
    for index in range(100):
        page = agent.call("phone", "search_contacts", page_index=index, page_limit=3)
        found += page
        if not page:
            break
        assert len(page) <= 3
    ids = [row["contact_id"] for row in found]
    assert ids == [
        row["id"] for row in agent.overlay.where("phone.contacts", owner_id=agent.person)
    ]
    assert len(agent.call("phone", "search_contacts")) == 5
    falling = agent.call("phone", "search_contacts", sort_by="-birthday", page_limit=20)
    days = [row["birthday"] for row in falling]
    assert days == sorted(days, reverse=True)
    assert agent.refused("phone", "search_contacts", sort_by="birthday").status == 422
    assert agent.refused("phone", "search_contacts", page_limit=21).status == 422


def test_a_query_ranks_before_the_page_is_cut(agent):
    name = agent.call("phone", "search_contacts", page_index=1)[0]["first_name"]
    assert agent.call("phone", "search_contacts", query=name, page_limit=1)[0]["first_name"] == name
    assert agent.call("phone", "search_contacts", query="zzzz") == []


def test_docs_are_reachable_by_the_agent(agent):
    names = [row["name"] for row in agent.call("api_docs", "show_app_descriptions")]
    assert names == list(APPS.names())
    lines = agent.call("api_docs", "show_api_descriptions", app_name="phone")
    assert any(line.startswith("send_text_message : ") for line in lines)
    doc = agent.call("api_docs", "show_api_doc", app_name="phone", api_name="login")
    assert doc["parameters"][0]["name"] == "username"
    found = agent.call("api_docs", "search_api_docs", query="set an alarm")
    assert found[0]["api_name"] == "create_alarm"
    assert agent.refused("api_docs", "show_api_doc", app_name="phone", api_name="x").status == 404


def test_the_task_is_completed_once(agent):
    assert agent.refused("supervisor", "show_active_task").status == 409
    agent.overlay.task = {"instruction": "Do it."}
    assert agent.call("supervisor", "show_active_task") == {"instruction": "Do it."}
    for bad in ({"a": 1}, [["x"]], float("nan"), 2**60):
        assert agent.refused("supervisor", "complete_task", answer=bad).status == 422
    done = agent.call("supervisor", "complete_task", answer=["a", 3])
    assert done == {"message": "Marked the active task complete."}
    [(number, row)] = agent.overlay.changes()["supervisor.tasks"].items()
    assert (row["answer"], row["status"]) == (["a", 3], "success")
    assert agent.refused("supervisor", "complete_task").status == 409


def test_the_neutral_brand_names_no_trademark():
    apps = make_apps("neutral")
    text = json.dumps([apps.doc(app, name) for app in apps.names() for name in apps.functions(app)])
    text += json.dumps(apps.descriptions())
    text += json.dumps([apps.schema(a, n) for a in apps.names() for n in apps.functions(a)])
    tables = world(1, "neutral").tables
    text += json.dumps([dict(rows) for rows in tables.values()])
    assert not TRADEMARKS.search(text)
    assert apps.names() == tuple(NEUTRAL.get(name, name) for name in APPS.names())
    agent = Agent(Overlay(world(1, "neutral")), apps=apps)
    assert agent.token(NEUTRAL["gmail"])
    with pytest.raises(ValueError, match="brand"):
        APPS.call(Overlay(world(1, "neutral")), 1, "phone", "login", {})


# each app's own rules


def test_phone_messages(agent):
    contact = agent.call("phone", "search_contacts")[0]
    number = contact["phone_number"]
    sent = agent.call("phone", "send_text_message", phone_number=number, text="Hi")
    newest = agent.call("phone", "search_text_messages", phone_number=number)[0]
    assert (newest["text_message_id"], newest["text"]) == (sent["text_message_id"], "Hi")
    agent.call("phone", "delete_text_message", text_message_id=sent["text_message_id"])
    gone = agent.refused("phone", "show_text_message", text_message_id=sent["text_message_id"])
    assert gone.status == 409
    assert agent.overlay.get("phone.text_messages", sent["text_message_id"]) is not None
    others = next(r for r in agent.overlay.rows("phone.alarms") if r["owner_id"] != agent.person)
    assert agent.refused("phone", "delete_alarm", alarm_id=others["id"]).status == 401


def test_an_attachment_goes_from_mail_to_file_and_back(agent):
    number = next(
        row["id"]
        for row in agent.overlay.where("gmail.emails", owner_id=agent.person)
        if row["attachments"]
    )
    name = agent.call("gmail", "show_email", email_id=number)["attachment_names"][0]
    arguments = {"email_id": number, "attachment_name": name, "path": "~/downloads/x.txt"}
    assert agent.call("gmail", "save_attachment", **arguments)
    assert agent.refused("gmail", "save_attachment", **arguments).status == 422
    friend = agent.call("phone", "search_contacts")[0]["email"]
    agent.call(
        "gmail", "send_email", recipients=[friend], attachment_paths=["~/downloads/x.txt"],
        file_system_access_token=agent.token("file_system"),
    )  # fmt: skip
    changed = agent.overlay.changes()
    assert changed.keys() == {"file_system.files", "gmail.emails", "gmail.threads"}
    sent, got = changed["gmail.emails"].values()
    assert (sent["box"], got["box"], got["read"]) == ("sent", "inbox", False)
    assert sent["attachments"] == got["attachments"] != []


def test_money_is_neither_made_nor_lost(agent):
    def total():
        return round(sum(row["balance"] for row in agent.overlay.rows("venmo.accounts")), 2)

    before = total()
    other = agent.call("venmo", "search_users", friends_only=True)[0]["email"]
    agent.call("venmo", "create_transaction", receiver_email=other, amount=1.25)
    assert total() == before
    me = agent.call("supervisor", "show_profile")["email"]
    for amount in (1.255, 90_000.0):
        arguments = {"receiver_email": other, "amount": amount}
        assert agent.refused("venmo", "create_transaction", **arguments).status == 422
    assert agent.refused("venmo", "create_transaction", receiver_email=me, amount=1).status == 422


def test_an_order_empties_the_cart_and_the_stock(agent):
    agent.call("amazon", "clear_cart")
    product = agent.call("amazon", "search_products", in_stock=True)[0]
    agent.call("amazon", "add_to_cart", product_id=product["product_id"], quantity=2)
    address = agent.call("amazon", "show_addresses")[0]["address_id"]
    number = agent.call("amazon", "show_payment_cards")[0]["payment_card_id"]
    agent.overlay.update("amazon.payment_cards", number, expires_on="2999-01-01")
    order = agent.call("amazon", "place_order", address_id=address, payment_card_id=number)
    assert agent.call("amazon", "show_cart") == {"items": [], "total": 0}
    shown = agent.call("amazon", "show_product", product_id=product["product_id"])
    assert shown["stock"] == product["stock"] - 2
    agent.call("amazon", "cancel_order", order_id=order["order_id"])
    assert agent.call("amazon", "show_product", product_id=product["product_id"]) == product


@pytest.mark.parametrize("seed", range(1, 6))
def test_shares_add_up_to_the_expense(seed):
    for row in world(seed).tables["splitwise.expenses"].values():
        assert round(sum(share["amount"] for share in row["shares"]), 2) == row["amount"]
