"""New rooms by reverse play: solvable by construction, bounded by node counts.

A floor plan is carved by a random walk with 3x3 patterns (as in gym-sokoban: 1.7 x (height + width)
steps, a new direction with chance 0.35). Boxes start on the targets and are pulled away by a beam
search on bit boards; the best state without a box on a target becomes the start. Nothing depends on
a clock. Facts and figures: ``SOKOBAN_CARDS.md``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from agent_envs.core.errors import OptionError
from agent_envs.core.seeding import keyed_seed
from agent_envs.envs.sokoban.room import Room, cells
from agent_envs.envs.sokoban.solver import Push, expand, push_distances

SPLITS: dict[str, int | None] = {"train": None, "val": 1000, "test": 1000}
_SPLIT_OF_TENTH = ("train",) * 8 + ("val", "test")
_KEY = 0x50CB  # domain separation of this generator's seeds

_Draw = Callable[[], float]

PLANS = 4  # floor plans that are searched before the best room so far is dealt
MOST_PLANS = 16  # floor plans that are searched before a room short of the rules is dealt
NODES = 330  # states of one reverse search with up to four boxes; more boxes, more states
BEAM = 7
DEPTH = 60  # pulls of one search, likewise
PATTERNS = (
    ((0, 0), (0, -1), (0, 1)),
    ((0, 0), (-1, 0), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
    ((0, 0), (1, 0), (1, 1), (0, 1)),
    ((0, 0), (0, 1), (-1, 0)),
)  # cells carved around the walker
GOOD_PUSHES = {1: 3, 2: 6}  # by number of boxes; more boxes: 4 each. Good enough to stop early


def split_of(room: Room) -> str:
    """The split a room belongs to, by the hash of its fixed part: 8 : 1 : 1."""
    return _SPLIT_OF_TENTH[room.fixed_hash % 10]


@dataclass(frozen=True, slots=True)
class _Node:
    boxes: int
    region: int
    player: int
    last: int  # the box pulled last, to count switches
    parent: _Node | None
    push: Push | None  # forward: undoes the pull that led here
    depth: int
    switches: int
    score: float


def check_size(height: int, width: int, boxes: int) -> None:
    """OptionError where a room of that size cannot hold so many boxes."""
    for name, value, least in (("height", height, 5), ("width", width, 5), ("num_boxes", boxes, 1)):
        if type(value) is not int or value < least:
            raise OptionError(f"{name} must be an integer of at least {least}, got {value!r}")
    inside = (height - 2) * (width - 2)
    if boxes * 4 > inside:
        raise OptionError(
            f"a {height}x{width} room has {inside} cells inside: at most {inside // 4} boxes, "
            f"got {boxes}"
        )
    if height > 64 or width > 64:
        raise OptionError(f"rooms are at most 64x64, got {height}x{width}")


@lru_cache(maxsize=1024)
def generate(height: int, width: int, boxes: int, split: str, index: int, max_moves: int) -> Room:
    """The ``index``-th room of a split.

    The room's known solution needs at most ``max_moves`` moves, and no box starts on a target.
    Floor plans are redrawn from the same stream until one belongs to the split. After PLANS
    searches the best room so far is dealt; should there be none (crowded rooms), searches go on to
    MOST_PLANS, and then the room with the fewest boxes on targets is dealt, whatever its solution
    takes: solvable and not solved, but short of the rules above.
    """
    check_size(height, width, boxes)
    draw = random.Random(
        keyed_seed(_KEY, height, width, boxes, list(SPLITS).index(split), index)
    ).random
    best: tuple[int, Room] | None = None
    spare: tuple[int, Room] | None = None  # (boxes off targets, room)
    good = GOOD_PUSHES.get(boxes, 4 * boxes)
    for searched, (plan, start) in enumerate(_plans(height, width, boxes, split, draw), 1):
        nodes = _search(plan, start, draw)
        found = _deal(plan, nodes, draw, max_moves)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
        if best is None:
            spare = max(filter(None, (spare, _makeshift(plan, nodes))), default=None, key=_first)
        if best is not None and (searched >= PLANS or best[0] >= good):
            return best[1]
        if searched >= MOST_PLANS and spare is not None:
            return spare[1]
    raise AssertionError("plans are endless")


def _first(pair: tuple[int, Room]) -> int:
    return pair[0]


def _plans(
    height: int, width: int, boxes: int, split: str, draw: _Draw
) -> Iterator[tuple[Room, int]]:
    """Endless floor plans of the split: rooms with the boxes on the targets, and a player cell."""
    while True:
        floor = _carve(height, width, draw)
        while floor.bit_count() < 2 * boxes + 2:  # another walk: it reaches all cells in the end
            floor |= _carve(height, width, draw)
        if not _connected(height, width, floor):
            continue
        spots = list(cells(floor))
        chosen = [spots.pop(int(draw() * len(spots))) for _ in range(boxes + 1)]
        targets = sum(1 << cell for cell in chosen[1:])
        walls = ((1 << height * width) - 1) & ~floor
        plan = Room(height, width, walls, targets, targets, chosen[0])
        if split_of(plan) == split:
            yield plan, chosen[0]


def _carve(height: int, width: int, draw: _Draw) -> int:
    floor = 0
    row, column = 1 + int(draw() * (height - 2)), 1 + int(draw() * (width - 2))
    direction = int(draw() * 4)
    for _ in range(int(1.7 * (height + width))):
        if draw() < 0.35:
            direction = int(draw() * 4)
        step = ((-1, 0), (1, 0), (0, -1), (0, 1))[direction]
        row = min(max(row + step[0], 1), height - 2)
        column = min(max(column + step[1], 1), width - 2)
        for down, right in PATTERNS[int(draw() * len(PATTERNS))]:
            r, c = row + down, column + right
            if 0 < r < height - 1 and 0 < c < width - 1:
                floor |= 1 << r * width + c
    return floor


def _connected(height: int, width: int, floor: int) -> bool:
    room = Room(height, width, ((1 << height * width) - 1) & ~floor, 0, 0, 0)
    return room.region((floor & -floor).bit_length() - 1, 0) == floor


def _search(plan: Room, player: int, draw: _Draw) -> list[_Node]:
    """Pull boxes away from the targets; the best state of each number of pulls."""
    more = max(1.0, plan.targets.bit_count() / 4)
    distances = _nearest(plan)
    region = plan.region(player, plan.targets)
    beam = [_Node(plan.targets, region, player, -1, None, None, 0, 0, 0.0)]
    seen = {(plan.targets, region & -region)}
    best: list[_Node] = []
    left = int(NODES * more)
    for _ in range(int(DEPTH * more)):
        children = []
        for node in beam:
            for child in _pulls(plan, node, distances, draw):
                key = (child.boxes, child.region & -child.region)
                if key not in seen:
                    seen.add(key)
                    children.append(child)
                    left -= 1
        if not children or left <= 0:
            break
        children.sort(key=lambda node: -node.score)
        beam = children[:BEAM]
        off_targets = [node for node in beam if not node.boxes & plan.targets]
        best += (off_targets or beam)[:1]
    return best


def _makeshift(plan: Room, nodes: list[_Node]) -> tuple[int, Room] | None:
    """The state with the most boxes off targets, and their number."""
    counted = [((node.boxes & ~plan.targets).bit_count(), node.score, node) for node in nodes]
    if not counted:
        return None
    off, _, node = max(counted, key=lambda row: row[:2])
    room = Room(plan.height, plan.width, plan.walls, plan.targets, node.boxes, node.player)
    return (off, room) if off else None


def _deal(plan: Room, nodes: list[_Node], draw: _Draw, max_moves: int) -> tuple[int, Room] | None:
    """(pushes, room) of the highest-scoring state that keeps all rules."""
    candidates = [node for node in nodes if not node.boxes & plan.targets]
    for node in sorted(candidates, key=lambda node: -node.score):
        spots = list(cells(node.region & ~plan.targets)) or list(cells(node.region))
        player = spots[int(draw() * len(spots))]
        room = Room(plan.height, plan.width, plan.walls, plan.targets, node.boxes, player)
        pushes = _forward(node)
        moves = expand(room, player, node.boxes, pushes)
        if moves is not None and len(moves) <= max_moves:
            return len(pushes), room
    return None


def _forward(node: _Node) -> list[Push]:
    pushes = []
    step: _Node | None = node
    while step is not None and step.push is not None:
        pushes.append(step.push)
        step = step.parent
    return pushes


def _nearest(plan: Room) -> dict[int, int]:
    """Cell -> pulls from the nearest target on the empty board."""
    found: dict[int, int] = {}
    for distance in push_distances(plan).values():
        for cell, value in distance.items():
            found[cell] = min(value, found.get(cell, value))
    return found


def _pulls(plan: Room, node: _Node, distances: dict[int, int], draw: _Draw) -> Iterator[_Node]:
    """All states one pull away."""
    free = plan.all_cells & ~(plan.walls | node.boxes)
    for box in cells(node.boxes):
        for direction, step in enumerate(plan.steps):
            # the player stands behind the box at box - step and pulls it along -step; going
            # forward, that is a push of the box at box - step along ``direction``
            behind, beyond = box - step, box - 2 * step
            if beyond < 0 or not node.region >> behind & 1 or not free >> beyond & 1:
                continue
            boxes = node.boxes ^ 1 << box | 1 << behind
            region = plan.region(beyond, boxes)
            switches = node.switches + (node.last != box)
            score = sum([distances.get(cell, 0) for cell in cells(boxes)]) + 0.5 * switches + draw()
            yield _Node(
                boxes, region, beyond, behind, node, (behind, direction), node.depth + 1,
                switches, score,
            )  # fmt: skip
