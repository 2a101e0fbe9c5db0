"""The colour words that the original's option check knows, in its order."""

from __future__ import annotations

COLOURS = tuple(
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze "
    "brown burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas "
    "coffee cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso "
    "fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki "
    "lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha "
    "multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple "
    "rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone "
    "stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow".split()
)
_SET = frozenset(COLOURS)


def reduce_colour(text: str) -> str:
    """The first colour word in ``text``, in list order; the text itself where there is none."""
    return next((colour for colour in COLOURS if colour in text), text)


def reduce_pair(pair: tuple[str, str]) -> str:
    """The first of the two that is a colour word; else the pair as Python writes it."""
    if _SET.isdisjoint(pair):
        return str(pair)
    return next(colour for colour in COLOURS if colour in pair)
