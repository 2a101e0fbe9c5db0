"""The people of a world: names, households, work, and what they did together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

FIRST = """Aldina Benrik Corvin Delphia Edwyn Fennika Garrel Hestia Ilario Jorinde Kelvan Lisbet
Marvo Nerissa Oskan Petrina Quentis Rosalba Stellan Tamsin Ulrika Vance Wilmara Xandor Yolind Zephan
Amias Brielle Caspar Dorthea Elwin Frida Gideon Hanneke Isolde Jasper Katya Lorcan Mirela Nolan""".split()
LAST = """Ashgrove Bellweather Crowhurst Dunmore Elderkin Fairbourne Greyling Hollowell Inglefield
Jessamy Kestrel Larkspur Merriden Northcote Oakhanger Penhallow Quillfeather Ravensby Stonebridge
Thistlewood Underhill Vantongeren Whitlock Yarrowby""".split()
STREETS = "Alder Lane|Brook Street|Copper Row|Dove Hill|Fern Road|Harbour Walk|Mill Path".split("|")
TOWNS = "Larkfield|Port Emery|Stonemouth|Willowdale|East Carrow".split("|")
FIRMS = "Bluefinch Design|Cobalt Freight|Hazel & Pine Books|Meridian Dental".split("|")
CHORES = "electricity bill|internet bill|groceries|water bill|cleaning supplies".split("|")
OUTINGS = """dinner at Casa Verano|cinema tickets|bowling night|birthday present for a friend|taxi home
brunch at The Copper Pot|concert tickets|picnic supplies|cabin weekend|board game café""".replace(
    "\n", "|"
).split("|")
LUNCHES = "team lunch|coffee round|farewell gift|parking|office snacks".split("|")


@dataclass(frozen=True)
class Outing:
    """Something that several people paid for together; bills, payments and messages refer to it."""

    when: str
    title: str
    cents: int
    payer: int
    members: tuple[int, ...]  # payer among them
    household: int  # 0: no household's


def seed_people(b: Builder) -> None:
    """Tables people.people (with household and firm) and people.relations (both directions)."""
    rng = b.rng("people", "names")
    count = rng.randint(28, 36)
    firsts = rng.sample(FIRST, count)
    lasts = rng.sample(LAST, len(LAST))
    phones = rng.sample(range(10_000, 99_999), count)
    household, firm, left = 0, 0, 0
    for i, first in enumerate(firsts):
        if left == 0:
            household, left = household + 1, rng.choice((1, 2, 3, 3))
            flat = household % 2 == 0  # flatmates have names of their own, families share one
        left -= 1
        last = lasts[(i if flat else household) % len(lasts)]
        home = b.rng("people", f"home {household}")
        address = {
            "street_address": f"{home.randint(1, 199)} {home.choice(STREETS)}",
            "city": home.choice(TOWNS),
            "zip_code": str(home.randint(10_000, 99_999)),
        }
        born = f"{rng.randint(1962, 2001)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        firm = i % len(FIRMS)
        b.add(
            "people.people",
            first_name=first,
            last_name=last,
            email=f"{first}.{last}@{b.brand('gmail')}.com".lower(),
            phone_number=f"55501{phones[i]}",
            birthday=born,
            household=household,
            family=not flat,
            firm=FIRMS[firm],
            address=address,
        )
    _seed_relations(b)
    b.outings = sorted(_outings(b), key=lambda outing: (outing.when, outing.title, outing.payer))


def _seed_relations(b: Builder) -> None:
    rng = b.rng("people", "relations")
    managers = {firm: min(p["id"] for p in b.people if p["firm"] == firm) for firm in FIRMS}
    found: dict[tuple[int, int], str] = {}
    for one, other in combinations(b.people, 2):
        pair = one["id"], other["id"]
        if one["household"] == other["household"]:
            kind = _household_kind(one, other)
            found[pair] = found[pair[::-1]] = kind
            if kind == "child":
                found[pair] = "child"
                found[pair[::-1]] = "parent"
            elif kind == "parent":
                found[pair[::-1]] = "child"
        elif one["firm"] == other["firm"]:
            boss = managers[one["firm"]]
            found[pair] = "manager" if other["id"] == boss else "coworker"
            found[pair[::-1]] = "manager" if one["id"] == boss else "coworker"
        elif rng.random() < 0.22:
            found[pair] = found[pair[::-1]] = "friend"
    for (person, other_id), kind in sorted(found.items()):
        b.add("people.relations", person_id=person, other_id=other_id, kind=kind)


def _household_kind(one: Row, other: Row) -> str:
    """What ``other`` is to ``one``."""
    if not one["family"]:
        return "roommate"
    years = int(other["birthday"][:4]) - int(one["birthday"][:4])
    if years >= 18:
        return "child"
    return "parent" if years <= -18 else "sibling"


def _outings(b: Builder) -> Iterator[Outing]:
    rng = b.rng("people", "outings")
    households: dict[int, list[int]] = {}
    for person in b.people:
        households.setdefault(person["household"], []).append(person["id"])
    for household, members in households.items():
        for month in range(12):
            if len(members) == 1:
                break
            for title in rng.sample(CHORES, 2):
                when = b.ago(rng, 30 * month, 30 * month + 29)
                payer = rng.choice(members)
                yield Outing(
                    when, title, rng.randint(1200, 14_000), payer, tuple(members), household
                )
    for person in b.people:
        for kind, titles, times in (("friend", OUTINGS, 7), ("coworker", LUNCHES, 4)):
            others = b.related(person["id"], kind)
            for _ in range(times if others else 0):
                company = rng.sample(others, min(len(others), rng.randint(1, 3)))
                who = tuple(sorted([person["id"], *company]))
                cents = rng.randint(8, 90) * 100 * len(who) // 2
                yield Outing(b.ago(rng, 1, 360), rng.choice(titles), cents, rng.choice(who), who, 0)
