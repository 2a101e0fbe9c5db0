"""Types of parameters and answers: checked values, docs, JSON schemas and examples from one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

LARGEST = 2**53  # integers beyond are not the same number in every JSON reader
LONGEST_TEXT = 10_000  # characters
LONGEST_LIST = 100  # items
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}
ANYTHING = "string, number, boolean or list of these"  # of a parameter annotated as object
Spec = Any  # a type of NAMES, a Format, [spec], Maybe(spec), a View or a mapping of specs


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both included."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        parts = [f">= {self.low}"] * (self.low is not None)
        return "value " + ", ".join(parts + [f"<= {self.high}"] * (self.high is not None))

    def refuse(self, value: float) -> str | None:
        low = self.low is None or value >= self.low
        return None if low and (self.high is None or value <= self.high) else f"it must be: {self}"

    def schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.low, "maximum": self.high}
        return {key: value for key, value in bounds.items() if value is not None}


@dataclass(frozen=True)
class Length:
    """Bounds of a text's length in characters, or of a list's in items."""

    low: int = 0
    high: int = LONGEST_TEXT

    def __str__(self) -> str:
        return f"length >= {self.low}, <= {self.high}"

    def refuse(self, value: str | list[Any]) -> str | None:
        return None if self.low <= len(value) <= self.high else f"it must have {self}"

    def schema(self) -> dict[str, Any]:
        return {"minLength": self.low, "maxLength": self.high}


@dataclass(frozen=True)
class Format:
    """A text of a fixed form; ``time`` is what strptime reads, if it is a point of time."""

    name: str
    example: str
    pattern: str
    time: str = ""

    def __str__(self) -> str:
        return f"value is {self.name}"

    def refuse(self, value: str) -> str | None:
        fits = re.fullmatch(self.pattern, value, re.ASCII) is not None
        if fits and self.time:
            try:
                datetime.strptime(value, self.time)
            except ValueError:
                fits = False
        return None if fits else f"it must be {self.name}, e.g. {self.example}"

    def schema(self) -> dict[str, Any]:
        return {"description": f"{self.name}, e.g. {self.example}"}


EMAIL = Format("email address", "user@example.com", r"[^@\s]{1,60}@[^@\s]{1,60}\.[a-z]{2,10}")
PHONE = Format("phone number of 10 digits", "5550100000", r"\d{10}")
DATE = Format("date (YYYY-MM-DD)", "2019-01-01", r"\d{4}-\d\d-\d\d", "%Y-%m-%d")
DATETIME = Format(
    "date-time (YYYY-MM-DDTHH:MM:SS)",
    "2019-01-01T00:00:00",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
    "%Y-%m-%dT%H:%M:%S",
)
TIME = Format("time (HH:MM)", "07:30", r"\d\d:\d\d", "%H:%M")
PATH = Format(
    "absolute path, or one from the home folder", "~/notes/list.txt", r"[~/][^\x00-\x1f]{0,199}"
)

Text = Annotated[str, Length(1, 200)]  # a title, a name
Body = Annotated[str, Length(0, 5000)]
Id = Annotated[int, Range(1)]
Amount = Annotated[float, Range(0.01, 100_000)]  # of money
Email = Annotated[str, EMAIL]
Phone = Annotated[str, PHONE]
Date = Annotated[str, DATE]
Datetime = Annotated[str, DATETIME]
Time = Annotated[str, TIME]
Path = Annotated[str, PATH]
Stars = Annotated[int, Range(1, 5)]


@dataclass(frozen=True)
class Maybe:
    """A value of an answer that can be null."""

    spec: Spec


class View(dict[str, Spec]):
    """The shape of one row in answers: ``View("song", title=str)(row)`` -> {"song_id", "title"}."""

    def __init__(self, thing: str, /, **fields: Spec) -> None:
        super().__init__({f"{thing}_id": int, **fields} if thing else fields)
        self.thing = thing

    def __call__(self, row: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The row's fields of this shape; ``more`` gives those that no row holds."""
        shown = {f"{self.thing}_id": row["id"], **row, **more}
        return {key: shown[key] for key in self}

    def plus(self, **fields: Spec) -> View:
        """The same with more fields."""
        view = View("", **self, **fields)
        view.thing = self.thing
        return view


DONE: Spec = {"message": str}


def created(thing: str) -> Spec:
    """The answer of an API that makes a new row."""
    return {"message": str, f"{thing}_id": int}


def example(spec: Spec) -> Any:
    """A value of this shape, as the docs show it."""
    if isinstance(spec, Mapping):
        return {key: example(part) for key, part in spec.items()}
    if isinstance(spec, list):
        return [example(spec[0])]
    if isinstance(spec, Maybe):
        return example(spec.spec)
    if isinstance(spec, Format):
        return spec.example
    return {str: "string", int: 1, float: 0.0, bool: True, object: "any"}[spec]


def mismatch(spec: Spec, value: Any, where: str = "answer") -> str | None:
    """Where ``value`` is not of this shape, None if it is. For tests."""
    if spec is object:
        return None
    if isinstance(spec, Maybe):
        return None if value is None else mismatch(spec.spec, value, where)
    if isinstance(spec, Mapping):
        if not isinstance(value, dict) or value.keys() != spec.keys():
            return f"{where}: {value!r} has not the fields {list(spec)}"
        found = (mismatch(spec[key], value[key], f"{where}.{key}") for key in spec)
        return next(filter(None, found), None)
    if isinstance(spec, list):
        if not isinstance(value, list):
            return f"{where}: {value!r} is no list"
        return next(filter(None, (mismatch(spec[0], item, f"{where}[]") for item in value)), None)
    if isinstance(spec, Format):
        fits = isinstance(value, str) and spec.refuse(value) is None
    else:
        fits = type(value) is spec or (spec is float and type(value) is int)
    return None if fits else f"{where}: {value!r} is no {spec}"


def shown(value: Any) -> str:
    """A value in an error message: short, whatever it is."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if abs(value) <= LARGEST else "a huge integer"
    return "a list" if isinstance(value, list) else "an object"


@dataclass(frozen=True)
class Kind:
    """A parameter's type, read from its annotation."""

    base: type  # of NAMES; of the items if many
    many: bool = False
    optional: bool = False  # null is allowed
    choices: tuple[str, ...] = ()
    rules: tuple[Any, ...] = field(default=())  # Range, Length, Format

    @property
    def name(self) -> str:
        if self.base is object:
            return ANYTHING
        return f"list[{NAMES[self.base]}]" if self.many else NAMES[self.base]

    @property
    def constraints(self) -> list[str]:
        choices = [f"value in [{', '.join(self.choices)}]"] if self.choices else []
        return choices + [str(rule) for rule in self.rules]

    def refuse(self, value: Any) -> str | None:
        """What is wrong with the value, None if nothing is."""
        if value is None and self.optional:
            return None
        if self.base is object:
            items = value if isinstance(value, list) else [value]
            kinds = (Kind(next((t for t in NAMES if type(item) is t), str)) for item in items)
            refused = (kind.refuse(item) for kind, item in zip(kinds, items, strict=True))
            return next(filter(None, refused), None)
        if not self.many:
            return self._refuse_one(value)
        if not isinstance(value, list):
            return f"it must be a {self.name}, got {shown(value)}"
        if len(value) > LONGEST_LIST:
            return f"it must have at most {LONGEST_LIST} items, got {len(value)}"
        return next(filter(None, map(self._refuse_one, value)), None)

    def _refuse_one(self, value: Any) -> str | None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        right = number if self.base is float else type(value) is self.base
        if not right:
            return f"it must be of type {NAMES[self.base]}, got {shown(value)}"
        if number and not abs(value) <= LARGEST:  # nan is not; no int becomes a float here
            return "the number is too large"
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            return f"it must have at most {LONGEST_TEXT} characters, got {len(value)}"
        if isinstance(value, str) and not value.isascii() and not encodable(value):
            return "it has half a character (a lone surrogate) in it"
        if self.choices and value not in self.choices:
            return f"{shown(value)} is not one of [{', '.join(self.choices)}]"
        return next(filter(None, (rule.refuse(value) for rule in self.rules)), None)

    def schema(self) -> dict[str, Any]:
        """As JSON schema."""
        if self.base is object:
            return {}
        one: dict[str, Any] = {"type": NAMES[self.base]}
        for rule in self.rules:
            one |= rule.schema()
        if self.choices:
            one["enum"] = list(self.choices)
        return {"type": "array", "items": one, "maxItems": LONGEST_LIST} if self.many else one


def encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def kind_of(annotation: Any) -> Kind:
    """The kind that an annotation says. TypeError for one that no parameter may have."""
    rules: tuple[Any, ...] = ()
    optional = False
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not NoneType]
        if len(parts) != 1:
            raise TypeError(f"{annotation!r}: a parameter has one type, or one and None")
        annotation, optional = parts[0], True
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        rules = tuple(metadata)
    if get_origin(annotation) is Literal:
        return Kind(str, optional=optional, choices=get_args(annotation))
    if get_origin(annotation) is list:
        inner = kind_of(get_args(annotation)[0])
        return Kind(inner.base, True, optional, inner.choices, inner.rules)
    if annotation not in NAMES and annotation is not object:
        raise TypeError(f"{annotation!r} is no type of a parameter")
    return Kind(annotation, optional=optional, rules=rules)
