"""Write a game as an official ``game.tw-pddl`` file.

The PDDL domain and the text grammar belong to ALFWorld, so they are taken from a game file that the
user already has; this project ships neither.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from agent_envs.core.errors import DataError
from agent_envs.core.files import write_atomic
from agent_envs.envs.alfworld.problem import Goal, Problem

# types that the domain's actions mention: they must exist even where the room has no such thing
_DOMAIN_OBJECT_TYPES = {"knifetype", "butterknifetype", "sinktype"}
_DOMAIN_RECEPTACLE_TYPES = {"sinkbasintype", "microwavetype", "fridgetype"}
_SENTENCE = re.compile(r"Your task is to: .*?(?=\")", re.DOTALL)


def write_game_file(problem: Problem, like: str | Path, path: str | Path) -> None:
    """Write ``problem`` to ``path``, with domain and grammar of the game file ``like``.

    Raises:
        DataError: ``like`` is not a game file.
    """
    try:
        content = json.loads(Path(like).read_bytes())
        domain, grammar = content["pddl_domain"], content["grammar"]
        if not _SENTENCE.search(grammar):
            raise ValueError("its grammar holds no task sentence")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{like} is no game.tw-pddl with domain and grammar: {error}") from error
    sentence = "Your task is to: " + json.dumps(problem.task)[1:-1]
    game = {
        "pddl_domain": domain,
        "grammar": _SENTENCE.sub(lambda _: sentence, grammar, count=1),
        "pddl_problem": problem_text(problem),
        "solvable": True,
        "walkthrough": list(problem.walkthrough),
    }
    write_atomic(path, json.dumps(game).encode())


def problem_text(problem: Problem) -> str:
    """The PDDL problem; everything in lower case, as the planner reads it."""
    facts = problem.facts
    receptacles = {r for r, _ in facts.get("receptacletype", ())}
    objects = {o for o, _ in facts.get("objecttype", ())}
    places = {
        place
        for name in ("receptacleatlocation", "objectatlocation", "atlocation")
        for _, place in facts.get(name, ())
    }
    object_types = {t for _, t in facts.get("objecttype", ())} | _DOMAIN_OBJECT_TYPES
    receptacle_types = {t for _, t in facts.get("receptacletype", ())} | _DOMAIN_RECEPTACLE_TYPES
    declared = [("agent1", "agent")]
    for names, kind in (
        (receptacles, "receptacle"), (objects, "object"), (places, "location"),
        (object_types, "otype"), (receptacle_types, "rtype"),
    ):  # fmt: skip
        declared += [(name, kind) for name in sorted(names)]
    lines = ["(define (problem generated)", "(:domain alfred)", "(:objects"]
    lines += [f"    {name} - {kind}" for name, kind in declared]
    lines += [")", "(:init"]
    for name, pairs in facts.items():
        lines += [f"    ({' '.join(filter(None, (name, *pair)))})" for pair in pairs]
    lines += [")", f"(:goal {_goal_text(problem.goal)})", ")"]
    return "\n".join(lines) + "\n"


def _goal_text(goal: Goal) -> str:
    if goal.kind == "look":
        return (
            "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objecttype ?ot {goal.target_type}) (toggleable ?ot) (istoggled ?ot) "
            "(receptacleatlocation ?r ?l) (atlocation ?a ?l) (inreceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and (objecttype ?o {goal.object_type}) "
            "(holds ?a ?o))))"
        )
    target = f"(receptacletype ?r {goal.target_type})"
    if goal.kind == "two":
        return (
            f"(and (exists (?r - receptacle) (exists (?o1 - object) (and "
            f"(objecttype ?o1 {goal.object_type}) {target} (inreceptacle ?o1 ?r) "
            f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) (objecttype ?o2 {goal.object_type}) "
            f"{target} (inreceptacle ?o2 ?r)))))))"
        )
    conditions = " ".join(f"({name} ?o)" for name in goal.properties)
    return (
        f"(and (exists (?r - receptacle) (exists (?o - object) (and {conditions} "
        f"(objecttype ?o {goal.object_type}) {target} (inreceptacle ?o ?r)))))"
    )
