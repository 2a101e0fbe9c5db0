"""The page of the env server: its routes, and the page itself in headless Chromium."""

from __future__ import annotations

import configparser
import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

for _module in ("msgpack", "orjson", "starlette", "uvicorn", "websockets"):
    pytest.importorskip(_module, reason="the server needs the extra server")

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.conftest import ROOT
from tests.serving import Served

TOKEN = "s3cret-Token"
ENVS = "tests.served:Test/Toy-v0,AgentEnv/NumberLine-v0,AgentEnv/Sokoban-v0"
STATIC = ROOT / "agent_envs_server" / "static"
MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


@pytest.fixture(scope="module")
def server():
    with Served(envs=ENVS) as served:
        yield served


@pytest.fixture(scope="module")
def guarded():
    with Served(envs="AgentEnv/NumberLine-v0", AGENT_ENVS_SERVER_TOKEN=TOKEN) as served:
        yield served


# -- without a browser ---------------------------------------------------------------------------


def test_the_page_and_its_files_are_open_and_the_names_need_the_token(guarded):
    status, page = guarded.get("/")
    assert status == 200
    assert "<script" in page
    for file in STATIC.iterdir():
        assert guarded.get(f"/static/{file.name}") == (200, file.read_text(encoding="utf-8"))
    assert guarded.get("/envs")[0] == 401
    assert guarded.get("/envs", Authorization="Bearer wrong")[0] == 401
    for given in (
        guarded.get("/envs", Authorization=f"Bearer {TOKEN}"),
        guarded.get(f"/t/{TOKEN}/envs"),
    ):
        assert given == (200, '{"envs":["NumberLine-v0"]}')
    for path in ("/static/../page.py", "/static/%2e%2e/page.py", "/static/", "/static/none.js"):
        assert guarded.get(path)[0] in (401, 404), path


def test_the_page_lets_no_foreign_code_run(server):
    with urllib.request.urlopen(server.url, timeout=20) as answer:
        policy = answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        page = answer.read().decode()
    with urllib.request.urlopen(server.url + "/static/main.js", timeout=20) as answer:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert "unsafe" not in policy
    assert "http://" not in page
    assert "https://" not in page
    for file in STATIC.glob("*.js"):
        code = file.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert way not in code, (file.name, way)


def test_a_socket_of_the_page_says_the_token_first(guarded):
    address = guarded.url.replace("http", "ws", 1) + "/envs/NumberLine-v0/ws"

    def said(first: str) -> dict:
        with connect(address, origin=guarded.url, proxy=None) as socket:
            socket.send(first)
            socket.send('{"type": "reset", "data": {"seed": 1}}')
            return json.loads(socket.recv(timeout=20))

    assert said(json.dumps({"type": "auth", "data": {"token": TOKEN}}))["type"] == "observation"
    wrong = [
        json.dumps({"type": "auth", "data": {"token": token}}) for token in ("wrong", "", None, 1)
    ]
    for first in (*wrong, '{"type": "reset", "data": {}}', "[" * 10_000, TOKEN):
        with pytest.raises(ConnectionClosed) as closed:
            said(first)
        assert closed.value.rcvd.code == 4401, first


def test_the_files_are_in_the_wheel():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    patterns = config["options.package_data"]["agent_envs_server"].split()
    for file in STATIC.iterdir():
        name = file.relative_to(STATIC.parent)
        assert any(name.match(pattern) for pattern in patterns), name


# -- in Chromium ---------------------------------------------------------------------------------

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError:
    webdriver = None
DESKTOP, PHONE = (1280, 900), (390, 844)


class Page:
    """The page in a browser; every check waits until it holds."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, url: str, size: tuple[int, int] = DESKTOP) -> None:
        # headless windows have a least width; the emulated screen has not
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.get(url + "/")

    def __getitem__(self, name: str):
        return self.driver.find_element(By.ID, name)

    def wait(self, condition):
        """The first true value of ``condition``; its elements may be replaced meanwhile."""
        return WebDriverWait(
            self.driver, 20, 0.03, ignored_exceptions=(StaleElementReferenceException, IndexError)
        ).until(lambda _: condition())

    def shows(self, name: str, text: str) -> None:
        self.wait(lambda: text in self[name].text)

    def all(self, css: str):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def figures(self) -> dict[str, str]:
        return dict(zip(self.texts("#figures dt"), self.texts("#figures dd"), strict=True))

    def begin(self, env: str, seed: int = 0, options: str = "") -> None:
        self.wait(lambda: self.all(f"#env option[value='{env}']"))
        Select(self["env"]).select_by_value(env)
        for name, value in (("seed", str(seed)), ("options", options)):
            self[name].clear()
            self[name].send_keys(value)
        self["begin"].click()
        self.wait(lambda: self["text"].is_displayed() and self["text"].is_enabled())

    def press(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self):
        return self.driver.switch_to.active_element

    def fits(self) -> bool:
        return self.driver.execute_script(
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )

    def replay(self, file: Path) -> None:
        self["tab-replay"].click()
        self["file"].send_keys(str(file))
        self.shows("about", f"{file.name}:")

    def columns(self) -> list[str]:
        return self.texts("#columns article")

    def texts(self, css: str) -> list[str]:
        code = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)"
        return self.driver.execute_script(code, css)


@pytest.fixture(scope="module")
def chromium():
    for found, what in (
        (CHROMIUM, "chromium"),
        (DRIVER, "chromedriver"),
        (webdriver, "selenium"),
    ):
        if not found:
            pytest.skip(f"no {what} here")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium):
    chromium.get_log("browser")
    return Page(chromium)


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory) -> Path:
    """Two groups of two replicas, played by both policies."""
    file = tmp_path_factory.mktemp("page") / "played.jsonl"
    subprocess.run(
        [sys.executable, "-c", "from agent_envs.cli import main; main()", "rollout",
         "AgentEnv/NumberLine-v0", "--groups", "2", "--group-size", "2", "--max-steps", "4", "--out", str(file)],
        check=True, stdout=subprocess.DEVNULL, cwd=ROOT, timeout=120,
    )  # fmt: skip
    return file


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_play_by_clicking_typing_and_keys(page, server):
    page.open(server.url)
    page.begin("NumberLine-v0", seed=0)
    assert page["observation"].text == "Target: 3\nCurrent: 5\nThe line goes from 0 to 5."
    assert "Reason first, step by step, inside <think>" in page["prompt"].text
    assert page.figures() == {"reward": "–", "total": "0", "steps": "0", "score": "0", "last action": "–"}  # fmt: skip
    assert page.focused() == page["text"]

    page.all("#actions button")[0].click()  # +, at the end of the line
    page.shows("past", "reward")
    assert "Current: 5" in page["observation"].text
    page["text"].send_keys("<think>down</think><action>-</action>", Keys.ENTER)
    page.shows("observation", "Current: 4")
    assert "[Observation 2: " in page["prompt"].text  # the memory
    page["text"].send_keys("jump", Keys.ENTER)
    page.wait(lambda: page.figures()["last action"] == "invalid")

    page["text"].send_keys(Keys.ARROW_DOWN)
    page.wait(lambda: page.focused().text == "+")
    page.press(Keys.ARROW_RIGHT)
    assert page.focused().text == "-"
    page.press(Keys.ENTER)
    page.shows("status", "won")
    assert page.figures()["total"] == "-1"
    assert page.texts("#past span") == [
        "+", "<think>down</think><action>-</action>", "jump", "-"]  # fmt: skip
    assert page.texts("#past small") == ["reward -1", "reward 0", "reward -1", "reward 1"]
    assert not page["text"].is_enabled()
    assert page.focused() == page["begin"]
    page.press(Keys.ENTER)
    page.shows("status", "Get to 3")
    assert page.all("#past li") == []
    assert page.driver.get_log("browser") == []


def test_pictures_options_and_seeds_of_any_size(page, server):
    page.open(server.url)
    page.begin("Sokoban-v0", 2**62 + 1, '{"obs_mode": "image", "max_steps": 1}')
    pictures = page.all("#image, #prompt img")
    page.wait(lambda: all(picture.get_property("naturalWidth") > 0 for picture in pictures))
    assert len(pictures) == 2
    assert not page["observation"].is_displayed()
    page["info"].find_element(By.XPATH, "..").click()
    assert json.loads(page["info"].text)["task_id"].endswith(f"/{2**62 + 1}")
    page.all("#actions button")[0].click()
    page.shows("status", "was cut off at its step limit: not won")
    for options, why in (
        ('{"no_such": 1}', "reset takes no 'no_such'; valid: seed,"),
        ('{"obs_mode"', "the options are no JSON"),
        ("[1]", "must be a JSON object"),
    ):
        page["options"].clear()
        page["options"].send_keys(options, Keys.ENTER)
        page.shows("status", why)
        assert not page["text"].is_enabled()


def test_texts_stay_texts(page, server, trajectories, tmp_path):
    page.open(server.url)
    page.begin("Toy-v0")
    page["text"].send_keys(MARKUP, Keys.ENTER)
    page.shows("observation", f"said 1: {MARKUP}")
    page.shows("prompt", MARKUP)
    page.shows("past", MARKUP)

    rows = rows_of(trajectories)
    for row in rows:
        for field in ("env_id", "label", "observation", "completion", "action", "prompt"):
            if field in row:
                row[field] = MARKUP
    hostile = tmp_path / "hostile.jsonl"
    hostile.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.replay(hostile)
    page.shows("about", MARKUP)
    page.wait(lambda: MARKUP in page.columns()[0])
    assert page.all("#board img[src=x], #replay img, main script") == []
    assert page.driver.title == "agent-envs"


def test_the_token_is_asked_for_and_said(page, guarded):
    page.open(guarded.url)
    page.shows("status", "this server wants a token")
    page["token"].send_keys("wrong", Keys.TAB)
    page.shows("status", "the token is wrong")
    page["token"].send_keys("ä", Keys.TAB)
    page.shows("status", "tokens are printable ASCII")
    page["token"].clear()
    page["token"].send_keys(TOKEN, Keys.TAB)
    page.begin("NumberLine-v0")
    page["text"].send_keys("-", Keys.ENTER)
    page.shows("past", "reward 0")
    assert TOKEN not in page.driver.page_source
    assert TOKEN not in page.driver.current_url
    page.open(f"{guarded.url}/t/wrong")
    page.shows("status", "the token is wrong")


def test_a_server_that_goes_away_is_told(page):
    with Served(envs="AgentEnv/NumberLine-v0") as served:
        page.open(served.url)
        page.begin("NumberLine-v0")
        served.stop()
        page.shows("status", "The session is over: the server shuts down")
        assert not page["text"].is_enabled()
        assert "Current: 5" in page["observation"].text  # what was seen stays
        page["begin"].click()
        page.shows("status", "the server does not answer")


def test_walk_compare_and_filter_trajectories(page, server, trajectories):
    rows = rows_of(trajectories)
    starts = [row for row in rows if row["record"] == "start"]
    steps = {s["trajectory"]: [] for s in starts}
    for row in rows:
        if row["record"] == "step":
            steps[row["trajectory"]].append(row)
    first = [s for s in starts if s["group"] == 0]
    longest = max(len(steps[s["trajectory"]]) for s in first)

    page.open(server.url)
    page.replay(trajectories)
    won = sum(played[-1]["won"] for played in steps.values())
    page.shows("about", f"AgentEnv/NumberLine-v0; 8 trajectories, {won} won")
    page.wait(lambda: len(page.columns()) == len(first))
    assert page["group"].text.split("\n")[0] == f"group 0, seed {first[0]['seed']}"
    for at in range(longest + 1):
        page.shows("at-text", f"{at} of {longest}")
        for column, start in enumerate(first):
            played = steps[start["trajectory"]]
            seen = played[at]["observation"] if at < len(played) else played[-1]["next_observation"]
            page.wait(lambda c=column, s=seen: s in page.columns()[c])
            shown = page.columns()[column]
            assert shown.startswith(f"{start['label']}, replica {start['replica']}\n")
            assert (at >= len(played)) == ("after the last step" in shown)
            assert at >= len(played) or played[at]["completion"] in shown
        page.press(Keys.ARROW_RIGHT)
    page.press(Keys.HOME)
    page.shows("at-text", f"0 of {longest}")
    page.press(Keys.PAGE_DOWN)
    page.wait(lambda: page["group"].get_property("value").startswith("group 1"))
    page["on"].click()
    page.shows("at-text", "1 of")

    Select(page["label"]).select_by_visible_text("expert")
    page.wait(lambda: len(page.columns()) == 2 and "expert" in page.columns()[1])
    Select(page["outcome"]).select_by_value("lost")
    page.wait(lambda: page.columns() == [])
    assert page["none"].is_displayed()
    assert page.driver.get_log("browser") == []


def test_broken_files_say_where(page, server, trajectories, tmp_path):
    lines = trajectories.read_bytes().splitlines(keepends=True)
    page.open(server.url)
    for name, content, why in (
        ("middle", b"".join([*lines[:4], b"{oops\n", *lines[4:]]), "line 5 is no JSON"),
        ("foreign", b'{"a": 1}\n', "line 1 is no header"),
        ("later", b'{"record": "header", "schema": 2}\n', "schema 2; this page reads schema 1"),
        ("binary", b"\xff\xfe\x00" * 99, "line 1 is no UTF-8"),
        ("empty", b"", "the file is empty"),
        ("orphan", lines[0] + lines[2], "trajectory 0 has no start"),
        ("word", lines[0] + b'{"record": "constructor", "trajectory": 0}\n', "neither a start nor"),
    ):
        file = tmp_path / f"{name}.jsonl"
        file.write_bytes(content)
        page.replay(file)
        page.shows("about", why)
        assert page.columns() == []
    cut = tmp_path / "cut.jsonl"  # a run still writes it
    cut.write_bytes(b"".join(lines[:3]) + lines[3][:30])
    page.replay(cut)
    page.shows("about", "1 trajectories, 0 won")
    page.shows("about", "It ends within line 4; what stands before is shown.")
    page.wait(lambda: len(page.columns()) == 1)


def test_nothing_is_wider_than_a_phone(page, server, trajectories):
    page.open(server.url, PHONE)
    page.begin("Toy-v0")
    page["text"].send_keys("a" * 500, Keys.ENTER)
    page.shows("past", "a" * 500)
    assert page.fits()
    page.begin("Sokoban-v0", options='{"obs_mode": "both"}')
    assert page.fits()
    page.replay(trajectories)
    page.wait(lambda: len(page.columns()) == 4)
    assert page.fits()
