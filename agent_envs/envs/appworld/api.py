"""APIs from one declaration each: validation, docs, function schema and the call itself.

    SPOTIFY = App("spotify", "A music player ...")

    @SPOTIFY.api("GET", "/songs", returns=[SONG], search=("title",), sort=("title", "rating"))
    def search_songs(ctx: Context, *, artist_id: Id | None = None) -> Iterable[Answer]:
        '''Search the songs.

        artist_id: only songs of this artist
        '''

The function gets checked values only. It must do all its checks before its first write, since a
refused call leaves no trace but the time it took.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from agent_envs.envs.appworld.errors import ApiError
from agent_envs.envs.appworld.fields import DONE, Kind, Length, Range, Spec, View, example, kind_of
from agent_envs.envs.appworld.paging import page_of
from agent_envs.envs.appworld.store import Overlay, Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

Answer = Any  # JSON
Brand = Literal["real", "neutral"]
BRANDS: tuple[str, ...] = get_args(Brand)
NEUTRAL = {
    "amazon": "shopwide",
    "gmail": "mailnook",
    "splitwise": "evenshare",
    "spotify": "tunewell",
    "todoist": "todotray",
    "venmo": "handpay",
}
TRADEMARKS = re.compile("|".join(NEUTRAL), re.IGNORECASE)
COMMON = {  # parameters that mean the same in every API
    "query": "words to look for; the best matches come first, pages are cut after that, and a"
    " sort_by then only orders within the page",
    "page_index": "which page, from 0",
    "page_limit": "results on a page",
    "sort_by": "a field with + before it for rising or - for falling order",
    "access_token": "the token that login gave",
}
LAST = ("page_index", "page_limit", "sort_by", "access_token")
UNAUTHORISED = (
    "You are either not authorized to access this {app} API endpoint or your access token is"
    " missing, invalid or expired."
)


def branded(text: str, brand: str) -> str:
    """The text with the brand's names for the trademarked apps, in the case they stand in."""

    def name(match: re.Match[str]) -> str:
        new = NEUTRAL[match[0].lower()]
        return new.capitalize() if match[0][0].isupper() else new

    return text if brand == "real" else TRADEMARKS.sub(name, text)


@dataclass(frozen=True)
class Param:
    """One parameter of an API."""

    name: str
    kind: Kind
    description: str
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def doc(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.kind.name,
            "required": self.required,
            "description": self.description,
            "default": None if self.required else self.default,
            "constraints": self.kind.constraints,
        }


@dataclass(frozen=True)
class Endpoint:
    """One declared API."""

    app: str
    name: str
    method: str
    path: str
    description: str
    params: Mapping[str, Param]
    returns: Spec
    auth: bool
    search: tuple[str, ...]
    sort: tuple[str, ...]
    function: Callable[..., Answer]

    @cached_property
    def required(self) -> frozenset[str]:
        return frozenset(param.name for param in self.params.values() if param.required)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        return {name: param.default for name, param in self.params.items() if not param.required}


@dataclass
class App:
    """One app: its APIs and how its tables are filled. See the module's docstring."""

    name: str
    description: str
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    seed: Callable[[Builder], None] = lambda builder: None

    def seeding(self, function: Callable[[Builder], None]) -> Callable[[Builder], None]:
        """Declares what fills the app's tables."""
        self.seed = function
        return function

    def api(
        self,
        method: str,
        path: str,
        *,
        returns: Spec = DONE,
        auth: bool = True,
        search: tuple[str, ...] = (),
        sort: tuple[str, ...] = (),
    ) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
        """Declares an API. ``sort`` (fields of the answer's items) makes it paged, ``search`` gives
        it a ``query`` over these fields."""

        def declare(function: Callable[..., Answer]) -> Callable[..., Answer]:
            name = function.__name__.rstrip("_")
            description, params = _declared(function, auth, search, sort)
            self.endpoints[name] = Endpoint(
                self.name, name, method, path, description, params, returns, auth, search, sort,
                function,
            )  # fmt: skip
            return function

        return declare

    def accounts(self, profile: View, by: str = "e-mail address") -> None:
        """Declares login, logout and show_profile over the table ``<app>.accounts`` (id: person)."""

        def login(ctx: Context, *, username: str, password: str) -> Answer:
            rows = ctx.where("accounts", username=username)
            if not rows or not hmac.compare_digest(rows[0]["password"].encode(), password.encode()):
                raise ApiError(401, "Invalid credentials: no account has this name and password.")
            return {"access_token": ctx.new_token(rows[0]["id"]), "token_type": "Bearer"}

        login.__doc__ = f"""Log in to your account; the token is valid for 20 to 30 minutes.

        username: your {by}
        password: your password for this app, as the supervisor app shows it
        """

        def logout(ctx: Context) -> Answer:
            """Log out: all your tokens of this app end."""
            held = {t: v for t, v in ctx.db.tokens.items() if v[:2] != (ctx.app, ctx.person)}
            ctx.db.tokens = held
            return {"message": "You are logged out."}

        def show_profile(ctx: Context) -> Answer:
            """Show your own account."""
            return profile(ctx.find("accounts", ctx.person))

        token = {"access_token": str, "token_type": str}
        self.api("POST", "/login", returns=token, auth=False)(login)
        self.api("POST", "/logout")(logout)
        self.api("GET", "/profile", returns=profile)(show_profile)


def _declared(
    function: Callable[..., Answer], auth: bool, search: tuple[str, ...], sort: tuple[str, ...]
) -> tuple[str, dict[str, Param]]:
    """Description and parameters (required first, the common ones last)."""
    text = inspect.cleandoc(function.__doc__ or "")
    words = dict(re.findall(r"^(\w+): (.*)$", text, re.MULTILINE))
    hints = get_type_hints(function, include_extras=True)
    found: dict[str, tuple[Kind, Any]] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        found[parameter.name] = kind_of(hints[parameter.name]), parameter.default
    if search:
        found["query"] = Kind(str, rules=(Length(0, 200),)), ""
    if sort:
        found["page_index"] = Kind(int, rules=(Range(0, 100_000),)), 0
        found["page_limit"] = Kind(int, rules=(Range(1, 20),)), 5
        choices = tuple(sign + name for name in sort for sign in "+-")
        found["sort_by"] = Kind(str, optional=True, choices=choices), None
    if auth:
        found["access_token"] = Kind(str), inspect.Parameter.empty
    names = [name for name in found if name not in LAST]
    names.sort(key=lambda name: found[name][1] is not inspect.Parameter.empty)
    ordered = names + [name for name in LAST if name in found]
    texts = COMMON | words
    params = {name: Param(name, found[name][0], texts[name], found[name][1]) for name in ordered}
    return text.partition("\n\n")[0].replace("\n", " "), params


@dataclass(slots=True)
class Context:
    """What an API's function sees: whose call it is, and the data."""

    db: Overlay
    apps: Apps
    app: str  # the name in table names, whatever the brand
    supervisor: int  # the person whom the agent works for
    person: int  # who is logged in to this app (the supervisor where no login is needed)

    @property
    def now(self) -> str:
        return self.db.now.isoformat(timespec="seconds")

    def table(self, name: str) -> str:
        return name if "." in name else f"{self.app}.{name}"

    def where(self, table: str, **equal: Any) -> list[Row]:
        return self.db.where(self.table(table), **equal)

    def mine(self, table: str, **equal: Any) -> list[Row]:
        return self.db.where(self.table(table), owner_id=self.person, **equal)

    def rows(self, table: str) -> Iterable[Row]:
        return self.db.rows(self.table(table))

    def find(self, table: str, number: int, thing: str = "") -> Row:
        """The row; 409 where there is none."""
        row = self.db.get(self.table(table), number)
        if row is None:
            thing = thing or singular(table)
            raise ApiError(409, f"The {thing} with id {number} does not exist.")
        return row

    def own(self, table: str, number: int, thing: str = "") -> Row:
        """The row; 401 where it is another person's (field ``owner_id``)."""
        row = self.find(table, number, thing)
        if row["owner_id"] != self.person:
            thing = thing or singular(table)
            raise ApiError(401, f"The {thing} with id {number} is not yours.")
        return row

    def insert(self, table: str, **values: Any) -> Row:
        return self.db.insert(self.table(table), **values)

    def update(self, table: str, number: int, **changes: Any) -> Row:
        """Sets the fields that are not None."""
        given = {key: value for key, value in changes.items() if value is not None}
        return self.db.update(self.table(table), number, **given)

    def delete(self, table: str, number: int) -> None:
        self.db.delete(self.table(table), number)

    def name_of(self, person: int) -> str:
        row = self.find("people.people", person)
        return f"{row['first_name']} {row['last_name']}"

    def email_of(self, person: int) -> str:
        return str(self.find("people.people", person)["email"])

    def account_of(self, email: str) -> int:
        """The person with this e-mail address who has an account of this app; 409 if none."""
        for row in self.where("people.people", email=email):
            if self.db.get(self.table("accounts"), row["id"]) is not None:
                return int(row["id"])
        raise ApiError(409, f"No account with the e-mail address {email} exists in this app.")

    def holder(self, token: str, app: str) -> int:
        """Whose the token of ``app`` is; 401 where it is none or has expired."""
        held = self.db.tokens.get(token)
        if held is None or held[0] != app or held[2] < self.db.seconds:
            name = branded(app, self.apps.brand)
            raise ApiError(401, UNAUTHORISED.format(app=name))
        return held[1]

    def new_token(self, person: int) -> str:
        """Logs the person in. The token is a function of the world, the app and the login's count."""
        self.db.logins += 1
        token = secret(self.db.world.seed, self.app, person, self.db.logins)
        minutes = 20 + int(token[:4], 16) % 11
        # expired tokens go, so that the snapshot stays small
        live = {t: v for t, v in self.db.tokens.items() if v[2] >= self.db.seconds}
        self.db.tokens = live | {token: (self.app, person, self.db.seconds + 60 * minutes)}
        return token


def secret(seed: int, *key: Any) -> str:
    """Hex of an HMAC keyed by the world's seed: passwords, tokens."""
    message = "|".join(map(str, key)).encode()
    return hmac.new(f"appworld {seed}".encode(), message, hashlib.sha256).hexdigest()[:40]


def singular(table: str) -> str:
    word = table.rpartition(".")[2].replace("_", " ")
    return word[:-3] + "y" if word.endswith("ies") else word.removesuffix("s")


def check(right: bool, message: str, status: int = 422) -> None:
    """Refuses the call unless ``right``."""
    if not right:
        raise ApiError(status, message)


class Apps:
    """All apps under one brand's names: what agents call and read."""

    def __init__(self, apps: Sequence[App], brand: Brand = "real") -> None:
        if brand not in BRANDS:
            raise ValueError(f"unknown brand {brand!r}; there are {', '.join(BRANDS)}")
        self.brand = brand
        self.apps = {branded(app.name, brand): app for app in apps}
        self._functions = {name: tuple(app.endpoints) for name, app in self.apps.items()}

    def names(self) -> tuple[str, ...]:
        return tuple(self.apps)

    def functions(self, app: str) -> tuple[str, ...]:
        """Names of the app's APIs. ApiError(404) for an unknown app."""
        self._app(app)
        return self._functions[app]

    def call(
        self, overlay: Overlay, supervisor: int, app: str, name: str, arguments: Any
    ) -> Answer:
        """The API's answer as JSON (shared with nobody), or ApiError. Moves the clock by 1 s.

        ``supervisor`` is a person's id. ValueError where the world's brand is another one.
        """
        if overlay.world.brand != self.brand:
            raise ValueError(f"a world of brand {overlay.world.brand!r} under {self.brand!r} apps")
        overlay.advance(1)
        endpoint = self.endpoint(app, name)
        if not isinstance(arguments, dict):
            raise ApiError(422, "The arguments must be an object of parameter names and values.")
        ctx = Context(overlay, self, endpoint.app, supervisor, supervisor)
        if endpoint.auth:
            token = arguments.get("access_token")
            ctx.person = ctx.holder(token if isinstance(token, str) else "", endpoint.app)
        values = self._checked(endpoint, app, arguments)
        page = {key: values.pop(key, None) for key in ("query", *LAST)}
        answer = endpoint.function(ctx, **values)
        if endpoint.search or endpoint.sort:
            answer = page_of(list(answer), endpoint.search, page)
            shape = endpoint.returns[0]  # what is searched need not be shown
            answer = [{key: item[key] for key in shape} for item in answer]
        return _copied(answer)

    def endpoint(self, app: str, name: str) -> Endpoint:
        """ApiError(404) for an unknown app or API, with the nearest names."""
        endpoints = self._app(app).endpoints
        endpoint = endpoints.get(name) if isinstance(name, str) else None
        if endpoint is None:
            told = f"No API named '{_cut(name)}' found in the {app} app."
            raise ApiError(404, told + _nearest(name, endpoints))
        return endpoint

    def _app(self, app: str) -> App:
        found = self.apps.get(app) if isinstance(app, str) else None
        if found is None:
            raise ApiError(404, f"No app named '{_cut(app)}' found." + _nearest(app, self.apps))
        return found

    @staticmethod
    def _checked(endpoint: Endpoint, app: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """All parameters' values. ApiError(422) naming every wrong one."""
        params = endpoint.params
        wrong = []
        for name, value in arguments.items():
            param = params.get(name)
            if param is None:
                wrong.append(f"{_cut(name)}: unknown parameter." + _nearest(name, params))
            elif reason := param.kind.refuse(value):
                wrong.append(f"{name}: {reason}")
        wrong += [
            f"{name}: missing" for name in params if name in endpoint.required - arguments.keys()
        ]
        if wrong:
            more = f"\n... and {len(wrong) - 10} more" if len(wrong) > 10 else ""
            told = f"Validation error. Reason: \n{chr(10).join(wrong[:10])}{more}"
            raise ApiError(422, f"{told}\nSee the docs of {app}.{endpoint.name}.")
        return endpoint.defaults | arguments

    # docs

    def descriptions(self) -> list[dict[str, str]]:
        return [
            {"name": name, "description": branded(app.description, self.brand)}
            for name, app in self.apps.items()
        ]

    def doc(self, app: str, name: str) -> dict[str, Any]:
        """All that an agent can know about an API."""
        endpoint = self.endpoint(app, name)
        return {
            "app_name": app,
            "api_name": name,
            "path": f"/{app}{endpoint.path}",
            "method": endpoint.method,
            "description": branded(endpoint.description, self.brand),
            "parameters": [
                {**param.doc(), "description": branded(param.description, self.brand)}
                for param in endpoint.params.values()
            ],
            "response_schemas": {
                "success": example(endpoint.returns),
                "failure": example(DONE),
            },
        }

    def schema(self, app: str, name: str) -> dict[str, Any]:
        """The API as a function tool in OpenAI's form, named ``<app>__<api>``."""
        endpoint = self.endpoint(app, name)
        properties = {
            param.name: {
                **param.kind.schema(),
                "description": branded(param.description, self.brand),
                **({} if param.required else {"default": param.default}),
            }
            for param in endpoint.params.values()
        }
        parameters = {
            "type": "object",
            "properties": properties,
            "required": [name for name in endpoint.params if name in endpoint.required],
            "additionalProperties": False,
        }
        function = {
            "name": f"{app}__{name}",
            "description": branded(endpoint.description, self.brand),
            "parameters": parameters,
        }
        return {"type": "function", "function": function}


def _cut(name: object) -> str:
    text = name if isinstance(name, str) else type(name).__name__
    return text.encode("utf-8", "replace").decode()[:60]


def _nearest(name: object, known: Iterable[str]) -> str:
    names = get_close_matches(_cut(name), list(known), n=3, cutoff=0.55)
    return f" Did you mean {', '.join(names)}?" if names else ""


def _copied(value: Answer) -> Answer:
    """A deep copy of JSON: base rows must not be reachable from answers."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value
