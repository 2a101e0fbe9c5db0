"""Action parsers: from any completion to one action or a named reason why there is none.

What every parser does, in this order:

1. Reasoning is cut first: ``<think>...</think>`` spans, everything before a ``</think>`` that nobody
   opened (chat templates often put the opening tag into the prompt), and everything after a
   ``<think>`` that nobody closed. An action that occurs only inside reasoning is invalid.
2. The action is looked for in the rest. With several, ``on_multiple`` decides.
3. ``valid`` and the executed action always agree: an invalid completion has no action.

Tags match in any case and with full-width brackets. Nothing here raises on any text.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol

from agent_envs.core.errors import made, one_of
from agent_envs.core.profile import Spec
from agent_envs.core.record import record
from agent_envs.core.spaces import check_text

SCRIPTS: dict[str, re.Pattern[str]] = {
    "han": re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"),
    "kana": re.compile("[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]"),
    "hangul": re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]"),
}
_CLOSINGS = 8  # lines tried as the end of one fence
_JSON_CANDIDATES = 64  # objects tried in one completion: bounds the work on hostile text


@record
class ParsedAction:
    """``action`` is None exactly where ``valid`` is False; ``reason`` then says why."""

    action: str | None
    valid: bool
    reason: str = ""


class ActionParser(Protocol):
    """Anything with these two methods."""

    def parse(self, completion: str, *, prefilled: str = "") -> ParsedAction:
        """The action in ``prefilled + completion``."""

    def format(self, action: str) -> str:
        """A completion that :meth:`parse` reads back as ``action``."""


def invalid(reason: str) -> ParsedAction:
    return ParsedAction(None, False, reason)


def _tag(name: str) -> re.Pattern[str]:
    # letter classes rather than IGNORECASE, which would cost the search its fast scan for "<"
    letters = "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else re.escape(c) for c in name)
    # possessive blanks: a run of them must not be tried at every length
    return re.compile(f"[<\uff1c]\\s*+([/\uff0f]?)\\s*+{letters}\\s*+[>\uff1e]")


def cut_reasoning(text: str, tag: re.Pattern[str]) -> str:
    """The text outside reasoning spans; spans may nest."""
    kept: list[str] = []
    depth, start = 0, 0
    for match in tag.finditer(text):
        if not match[1]:  # opening
            if depth == 0:
                kept.append(text[start : match.start()])
            depth += 1
        elif depth == 0:  # closes what the prompt opened
            kept.clear()
            start = match.end()
        else:
            depth -= 1
            start = match.end() if depth == 0 else start
    if depth == 0:
        kept.append(text[start:])
    return "\n".join(kept)


class _Parser:
    """Reasoning, language and multiplicity; subclasses find the candidates.

    Args:
        on_multiple: which of several actions counts: ``first``, ``last``, or ``invalid``.
        untagged: ``action`` takes a completion without any action mark as the action itself.
        think: name of the reasoning tag.
        require_think: a completion without reasoning is invalid (the seed system's rule).
        refuse_scripts: writing systems (``han``, ``kana``, ``hangul``) that make a completion
            invalid wherever they occur; the seed system refuses Han.
    """

    _fold = False  # lower-case actions; parsers whose actions are no code offer it

    def __init__(
        self,
        *,
        on_multiple: str = "first",
        untagged: str = "invalid",
        think: str = "think",
        require_think: bool = False,
        refuse_scripts: Sequence[str] = (),
    ) -> None:
        one_of("on_multiple", on_multiple, ("first", "last", "invalid"))
        one_of("untagged", untagged, ("invalid", "action"))
        for script in refuse_scripts:
            one_of("script", script, SCRIPTS)
        self._on_multiple, self._untagged = on_multiple, untagged
        self._think_name, self._think, self._require_think = think, _tag(think), require_think
        self._refused = [(name, SCRIPTS[name]) for name in refuse_scripts]

    def parse(self, completion: str, *, prefilled: str = "") -> ParsedAction:
        try:
            text = check_text(prefilled + completion, "completion")
        except (ValueError, TypeError) as error:
            return invalid(str(error))
        plain = self._plain(text)
        if plain is not None:
            return plain
        for name, pattern in self._refused:
            if pattern.search(text):
                return invalid(f"it holds {name} characters")
        if self._require_think and not self._think.search(text):
            return invalid(f"no <{self._think_name}> span")
        rest = cut_reasoning(text, self._think)
        found, reason = self._candidates(rest)
        if not found:
            if self._untagged == "action" and not reason and rest.strip():
                return ParsedAction(self._clean(rest), True)
            return invalid(reason or self._missing(text))
        if len(found) > 1 and self._on_multiple == "invalid":
            return invalid(f"{len(found)} actions where one is asked for")
        action = self._clean(found[-1 if self._on_multiple == "last" else 0])
        return ParsedAction(action, True) if action else invalid("the action is empty")

    def _plain(self, text: str) -> ParsedAction | None:
        """A short cut for the form that nearly every completion has; None: take the long way."""
        return None

    def _candidates(self, text: str) -> tuple[list[str], str]:
        """Actions in order, and why there is none where a mark was found but is unusable."""
        raise NotImplementedError

    def _reasoning(self, text: str) -> str:
        """``text`` in reasoning tags; nothing where it is empty."""
        return f"<{self._think_name}>{text}</{self._think_name}>" if text else ""

    def _clean(self, action: str) -> str:
        action = action.strip()
        return action.lower() if self._fold else action

    def _missing(self, text: str) -> str:
        return "no action"


class TagParser(_Parser):
    """``<action>...</action>``, the innermost pair where tags nest or are merely mentioned.

    Args:
        tag: the tag's name.
        fold_case: lower-case the action (not for code or free text).
        unclosed: ``action`` accepts a last opening tag without its end, as a stop string leaves it.
        reason: what :meth:`format` writes as reasoning; "" leaves the reasoning out.
        **options: see :class:`_Parser`.
    """

    def __init__(
        self,
        *,
        tag: str = "action",
        fold_case: bool = True,
        unclosed: str = "invalid",
        reason: str = "I act.",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        one_of("unclosed", unclosed, ("invalid", "action"))
        self._name, self._tag = tag, _tag(tag)
        self._fold, self._unclosed = fold_case, unclosed
        self._reason = self._reasoning(reason)
        think, name = re.escape(self._think_name), re.escape(tag)
        inside = "[^<\uff1c]*"
        self._usual = re.compile(
            f"\\s*+<{think}>{inside}+</{think}>\\s*+<{name}>({inside}+)</{name}>\\s*+"
        )

    def _plain(self, text: str) -> ParsedAction | None:
        match = None if self._refused else self._usual.fullmatch(text)
        if match is None or not (action := self._clean(match[1])):
            return None
        return ParsedAction(action, True)

    def _candidates(self, text: str) -> tuple[list[str], str]:
        found: list[str] = []
        start: int | None = None
        for match in self._tag.finditer(text):
            if not match[1]:
                start = match.end()
            elif start is not None:
                found.append(text[start : match.start()])
                start = None
        if start is not None and self._unclosed == "action":
            found.append(text[start:])
        elif start is not None and not found:
            return found, f"<{self._name}> is not closed"
        return found, ""

    def _missing(self, text: str) -> str:
        inside = " outside the reasoning" if self._tag.search(text) else ""
        return f"no <{self._name}> tag{inside}"

    def format(self, action: str) -> str:
        return f"{self._reason}<{self._name}>{action}</{self._name}>"


class BlockParser(_Parser):
    """One of several kinds of tagged blocks, kept with its tags: ``<search>words</search>``.

    Args:
        tags: the tags' names.
        reason: what :meth:`format` writes as reasoning; "" leaves it out.
        **options: see :class:`_Parser`.
    """

    def __init__(self, *, tags: Sequence[str], reason: str = "I act.", **options: Any) -> None:
        super().__init__(**options)
        self._names = tuple(tags)
        self._tags = {name: _tag(name) for name in self._names}
        self._reason = self._reasoning(reason)

    def _candidates(self, text: str) -> tuple[list[str], str]:
        marks = sorted(
            (match.start(), match.end(), bool(match[1]), name)
            for name, tag in self._tags.items()
            for match in tag.finditer(text)
        )
        found: list[str] = []
        opened: tuple[str, int] | None = None
        for start, end, closing, name in marks:
            if not closing:
                opened = (name, end)
            elif opened is not None and opened[0] == name:
                inside = text[opened[1] : start].strip()
                found += [f"<{name}>{inside}</{name}>"] if inside else []
                opened = None
        return found, ""

    def _missing(self, text: str) -> str:
        return f"no block of {' or '.join(f'<{name}>' for name in self._names)}"

    def format(self, action: str) -> str:
        return f"{self._reason}{action}"


class JsonParser(_Parser):
    """A JSON object with the action under ``key``; text and fences around it are ignored.

    Args:
        key: the member that holds the action, a string or a number.
        fold_case: lower-case the action.
        **options: see :class:`_Parser`.
    """

    def __init__(self, *, key: str = "action", fold_case: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self._key, self._fold = key, fold_case
        self._decode = json.JSONDecoder().raw_decode

    def _candidates(self, text: str) -> tuple[list[str], str]:
        found: list[str] = []
        position, reason = text.find("{"), ""
        for _ in range(_JSON_CANDIDATES):
            if position < 0:
                break
            try:
                value, end = self._decode(text, position)
            except (ValueError, RecursionError):
                end = position + 1
            else:
                action, reason = self._member(value)
                found += [] if action is None else [action]
            position = text.find("{", end)
        return found, "" if found else reason

    def _member(self, value: dict[str, Any]) -> tuple[str | None, str]:
        action = value.get(self._key)
        if isinstance(action, bool) or not isinstance(action, str | int | float):
            return None, f"the JSON object has no text under {self._key!r}"
        try:
            return check_text(str(action)), ""
        except ValueError as error:
            return None, str(error)

    def format(self, action: str) -> str:
        return json.dumps({self._key: action}, ensure_ascii=False)


class CodeParser(_Parser):
    """Code in ``<code>`` tags, or in a fenced block (three or more backticks or tildes).

    An unclosed fence runs to the end. Where several lines could close a fence (fences inside
    strings), the first one that leaves valid Python wins. Case and inner blanks are kept.

    Args:
        tag: name of the tag.
        **options: see :class:`_Parser`.
    """

    _fence = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([\w+.-]*+)[ \t]*+$", re.MULTILINE)

    def __init__(self, *, tag: str = "code", **options: Any) -> None:
        super().__init__(**options)
        self._name, self._tag = tag, _tag(tag)

    def _candidates(self, text: str) -> tuple[list[str], str]:
        found: list[str] = []
        start: int | None = None
        for mark in self._tag.finditer(text):
            if start is None and not mark[1]:
                start = mark.end()
            elif start is not None and mark[1]:
                found += self._inside_fence(text[start : mark.start()])
                start = None
        if start is not None:  # never closed: it runs to the end
            found += self._inside_fence(text[start:])
        return found or self._fenced(text), ""

    def _inside_fence(self, code: str) -> list[str]:
        return self._fenced(code) if self._fence.match(code.lstrip("\n")) else [code]

    def _fenced(self, text: str) -> list[str]:
        found, marks, i = [], list(self._fence.finditer(text)), 0
        while i < len(marks):
            opening = marks[i]
            fits = (
                j
                for j in range(i + 1, len(marks))
                if not marks[j][2]
                and marks[j][1][0] == opening[1][0]
                and len(marks[j][1]) >= len(opening[1])
            )
            closings = list(islice(fits, _CLOSINGS))
            end = _first_valid(text, opening.end(), [marks[j] for j in closings])
            found.append(text[opening.end() : marks[closings[end]].start() if closings else None])
            if not closings:  # never closed: it runs to the end
                break
            i = closings[end] + 1
        return found

    def _clean(self, action: str) -> str:
        return action.strip("\n").rstrip()

    def _missing(self, text: str) -> str:
        return f"no <{self._name}> tag or fenced block"

    def format(self, action: str) -> str:
        return f"<{self._name}>\n{action}\n</{self._name}>"


def _first_valid(text: str, start: int, closings: list[re.Match[str]]) -> int:
    """Which closing leaves valid Python; the first where none does (or it is the only one)."""
    for number, closing in enumerate(closings if len(closings) > 1 else ()):
        try:
            with warnings.catch_warnings():  # an agent's odd escapes are not our user's concern
                warnings.simplefilter("ignore")
                ast.parse(text[start : closing.start()])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return number
    return 0


PARSERS: dict[str, Callable[..., ActionParser]] = {
    "tags": TagParser,
    "blocks": BlockParser,
    "json": JsonParser,
    "code": CodeParser,
}


def parser_of(spec: Spec) -> ActionParser:
    """The parser that a profile asks for."""
    one_of("parser", spec.name, PARSERS)
    return made(f"parser {spec.name}", PARSERS[spec.name], spec.options)


def parser_for(env_id: str) -> ActionParser:
    """The default parser of a registered environment."""
    from agent_envs.registration import env_class

    return parser_of(env_class(env_id).profile.parser)
