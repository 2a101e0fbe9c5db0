"""Dataclasses from text: fields with help, YAML files that build on others, values as their types.

Nothing here knows what a run is made of; see :mod:`trainers.trl_adapter.config`.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from agent_envs.core import OptionError


def option(default: Any, text: str) -> Any:
    """A dataclass field with a help text; dicts and lists are copied for each instance."""
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata={"help": text})
    return field(default=default, metadata={"help": text})


def default_of(item: Field[Any]) -> Any:
    """The default of a dataclass field."""
    return item.default if item.default is not MISSING else item.default_factory()  # type: ignore[operator]


def build(kind: Any, values: Any, where: str = "") -> Any:
    """A dataclass from nested plain data; OptionError names an unknown field and the nearest ones."""
    if not isinstance(values, Mapping):
        raise OptionError(f"{where or 'config'}: expected fields, got {values!r:.60}")
    hints = typing.get_type_hints(kind)
    names = [item.name for item in fields(kind)]
    made: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{where}.{name}" if where else str(name)
        if name not in names:
            raise OptionError(f"unknown field {path!r}; {nearest(str(name), names)}")
        if is_dataclass(hints[name]):
            made[name] = build(hints[name], {} if value is None else value, path)
        else:
            made[name] = coerce(path, hints[name], value)
    return kind(**made)


def nearest(name: str, known: Sequence[str]) -> str:
    """What an unknown name may have meant, as the end of an error's sentence."""
    ends = {path.rpartition(".")[2]: path for path in known}
    close = get_close_matches(name, [*known, *ends], n=3, cutoff=0.5)
    found = list(dict.fromkeys(ends.get(match, match) for match in close))
    return f"nearest: {', '.join(found)}" if found else f"valid: {', '.join(known)}"


def coerce(where: str, kind: Any, value: Any) -> Any:
    """``value`` as the field's type; text is read where YAML left a number as text (``1e-3``)."""
    choices = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        plain = typing.get_origin(choice) or choice
        if plain is float and isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            if math.isnan(number):
                continue
            return number
        if plain is int and isinstance(value, bool):
            continue
        if isinstance(plain, type) and isinstance(value, plain):
            return value
        if plain is list and isinstance(value, str):
            return [value]
        if plain is str and isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    wanted = " or ".join(
        "none" if c is type(None) else str(getattr(c, "__name__", c)) for c in choices
    )
    raise OptionError(f"{where}: expected {wanted}, got {value!r:.80}")


def read_yaml(path: Path, inside: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Sections and fields of a file, on top of those of its ``base`` (relative to the file)."""
    if path.resolve() in inside:
        raise OptionError(f"{path}: `base` leads back to the file itself")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read the config {path}: {error}") from None
    try:
        values = yaml.load(text, _UniqueKeys)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise OptionError(f"{path} is no YAML: {error}") from None
    if not isinstance(values or {}, dict):
        raise OptionError(f"{path}: expected sections and fields, got a {type(values).__name__}")
    values = dict(values or {})
    base = values.pop("base", None)
    if base is None:
        return values
    return _merged(read_yaml(path.parent / str(base), (*inside, path.resolve())), values)


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Sections field by field; a field of ``above`` replaces that of ``below``, whole."""
    result = dict(below)
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            value = {**result[name], **value}
        result[name] = value
    return result
