"""Solving rooms: A* over pushes on bit boards, and simple deadlocks.

States are (boxes, lowest cell of the player's region): positions of the player that reach the same
pushes are one state. The heuristic is the cheapest assignment of boxes to targets by push distances
on the empty board (at most ``ASSIGNED`` boxes; beyond that each box's nearest target), which never
overestimates, so weight 1 gives the fewest pushes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import permutations

from agent_envs.envs.sokoban.room import Room, cells, move

ASSIGNED = 4
OPTIMAL_BOXES = 2  # up to here the expert's solutions have the fewest pushes
SMALL_ROOM = 40  # free cells
NODE_LIMIT = 30_000
_FAR = 1 << 20


@dataclass(frozen=True, slots=True)
class Solution:
    """Moves (indices of DIRECTIONS) that solve a room, and how many of them push."""

    moves: tuple[int, ...]
    pushes: int


@lru_cache(maxsize=512)
def push_distances(room: Room) -> dict[int, dict[int, int]]:
    """Target -> cell -> pushes that bring a lone box from the cell there (absent: impossible).

    Found by pulling a box away from the target; the player's way around is not considered.
    """
    free = room.all_cells & ~room.walls
    found: dict[int, dict[int, int]] = {}
    for target in cells(room.targets):
        distance = {target: 0}
        queue = deque([target])
        while queue:
            box = queue.popleft()
            for step in room.steps:
                # a push along -step: the box comes from box + step, the player from behind it
                source, behind = box + step, box + 2 * step
                if source in distance or not free >> source & 1:
                    continue
                if behind >= 0 and free >> behind & 1:
                    distance[source] = distance[box] + 1
                    queue.append(source)
        found[target] = distance
    return found


@lru_cache(maxsize=512)
def live_cells(room: Room) -> int:
    """Cells from which a lone box can still be pushed to some target."""
    mask = 0
    for distance in push_distances(room).values():
        for cell in distance:
            mask |= 1 << cell
    return mask


def is_deadlocked(room: Room, boxes: int) -> bool:
    """Is the room certainly lost: a box on a dead cell, or frozen off its target.

    Sound but not complete: some lost positions are not recognised.
    """
    if boxes & ~live_cells(room):
        return True
    return any(_is_frozen(room, boxes, cell) for cell in cells(boxes & ~room.targets))


def _is_frozen(room: Room, boxes: int, cell: int, seen: int = 0) -> bool:
    """Can the box move along neither axis; boxes that lean on ``seen`` ones count as walls."""
    seen |= 1 << cell
    blocked = room.walls | seen & ~(1 << cell)
    return all(_axis_blocked(room, boxes, cell, step, blocked, seen) for step in (1, room.width))


def _axis_blocked(room: Room, boxes: int, cell: int, step: int, blocked: int, seen: int) -> bool:
    sides = 1 << cell + step | 1 << cell - step
    if blocked & sides:
        return True
    dead = room.all_cells & ~live_cells(room)
    if dead & sides == sides:
        return True
    return any(
        boxes & side and _is_frozen(room, boxes, side.bit_length() - 1, seen)
        for side in (1 << cell + step, 1 << cell - step)
    )


class _Heuristic:
    """Lower bound on the pushes left, memoised by box positions."""

    def __init__(self, room: Room) -> None:
        distances = push_distances(room)
        targets = sorted(distances)
        size = room.height * room.width
        self._rows = [[distances[t].get(cell, _FAR) for t in targets] for cell in range(size)]
        self._orders = list(permutations(range(len(targets)))) if len(targets) <= ASSIGNED else None
        self._memo: dict[int, int] = {}

    def __call__(self, boxes: int) -> int:
        value = self._memo.get(boxes)
        if value is None:
            rows = [self._rows[cell] for cell in cells(boxes)]
            if self._orders is None:
                value = sum(map(min, rows))
            elif len(rows) == 1:
                value = min(rows[0])
            else:
                value = min(
                    sum([row[j] for row, j in zip(rows, order, strict=True)])
                    for order in self._orders
                )
            self._memo[boxes] = value
        return value


Push = tuple[int, int]
"""(cell of the box before the push, direction)."""


def solve_pushes(
    room: Room, player: int, boxes: int, *, weight: int = 1, node_limit: int = NODE_LIMIT
) -> list[Push] | None:
    """The pushes of a solution, None where there is none or the node limit is spent."""
    if boxes == room.targets:
        return []
    heuristic, live = _Heuristic(room), live_cells(room)
    free = room.all_cells & ~room.walls
    start = (boxes, _lowest(room.region(player, boxes)))
    cost = {start: 0}
    came: dict[tuple[int, int], tuple[tuple[int, int], Push]] = {}
    order = 0  # a counter breaks ties, so that equal costs are taken in a fixed order
    queue = [(weight * heuristic(boxes), 0, order, start, player)]
    closed: set[tuple[int, int]] = set()
    while queue and len(closed) < node_limit:
        _, _, _, state, player = heappop(queue)
        if state in closed:
            continue
        closed.add(state)
        boxes = state[0]
        if boxes == room.targets:
            return _trace(came, state)
        region = room.region(player, boxes)
        for box in cells(boxes):
            for direction, step in enumerate(room.steps):
                ahead = box + step
                if not region >> (box - step) & 1 or not (free & ~boxes & live) >> ahead & 1:
                    continue
                pushed = boxes ^ 1 << box | 1 << ahead
                if heuristic(pushed) >= _FAR or (
                    not room.targets >> ahead & 1 and _is_frozen(room, pushed, ahead)
                ):
                    continue
                child = (pushed, _lowest(room.region(box, pushed)))
                total = cost[state] + 1
                if total < cost.get(child, _FAR):
                    cost[child] = total
                    came[child] = (state, (box, direction))
                    order += 1
                    estimate = total + weight * heuristic(pushed)
                    heappush(queue, (estimate, -total, order, child, box))
    return None


def _lowest(mask: int) -> int:
    return mask & -mask


def _trace(
    came: dict[tuple[int, int], tuple[tuple[int, int], Push]], state: tuple[int, int]
) -> list[Push]:
    pushes: list[Push] = []
    while state in came:
        state, push = came[state]
        pushes.append(push)
    return pushes[::-1]


def walk(room: Room, start: int, goal: int, boxes: int) -> list[int] | None:
    """Shortest walk (indices of DIRECTIONS) without pushing; None where there is none."""
    free = room.all_cells & ~(room.walls | boxes)
    if start == goal:
        return []
    came = {start: (-1, -1)}
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        for direction, step in enumerate(room.steps):
            ahead = cell + step
            if ahead in came or not free >> ahead & 1:
                continue
            came[ahead] = (cell, direction)
            if ahead == goal:
                return _walk_back(came, goal)
            queue.append(ahead)
    return None


def _walk_back(came: dict[int, tuple[int, int]], cell: int) -> list[int]:
    moves: list[int] = []
    while came[cell][0] >= 0:
        cell, direction = came[cell]
        moves.append(direction)
    return moves[::-1]


def expand(room: Room, player: int, boxes: int, pushes: list[Push]) -> list[int] | None:
    """Pushes with the walks between them, as moves; None where a push is out of reach."""
    moves: list[int] = []
    for box, direction in pushes:
        step = room.steps[direction]
        way = walk(room, player, box - step, boxes)
        if way is None:
            return None
        moves += [*way, direction]
        player, boxes = move(room, box - step, boxes, direction)
    return moves


def solve_moves(
    room: Room, player: int, boxes: int, node_limit: int = NODE_LIMIT
) -> list[int] | None:
    """The fewest moves, by breadth-first search over single moves."""
    start = (player, boxes)
    came: dict[tuple[int, int], tuple[tuple[int, int], int]] = {start: (start, -1)}
    queue, live = deque([start]), live_cells(room)
    while queue and len(came) < node_limit:
        state = queue.popleft()
        if state[1] == room.targets:
            return _moves_back(came, state)
        for direction in range(4):
            child = move(room, *state, direction)
            if child not in came and not child[1] & ~live:
                came[child] = (state, direction)
                queue.append(child)
    return None


def _moves_back(
    came: dict[tuple[int, int], tuple[tuple[int, int], int]], state: tuple[int, int]
) -> list[int]:
    moves: list[int] = []
    while True:
        state, direction = came[state]
        if direction < 0:
            return moves[::-1]
        moves.append(direction)


@lru_cache(maxsize=4096)
def solve(room: Room, player: int, boxes: int, node_limit: int = NODE_LIMIT) -> Solution | None:
    """A solution from here: fewest moves up to OPTIMAL_BOXES boxes in small rooms, else good.

    Deterministic, and bounded by ``node_limit`` states; None where nothing was found.
    """
    if is_deadlocked(room, boxes):
        return None
    free = (room.all_cells & ~room.walls).bit_count()
    if boxes.bit_count() <= OPTIMAL_BOXES and free <= SMALL_ROOM:
        moves = solve_moves(room, player, boxes, node_limit)
    else:
        pushes = solve_pushes(room, player, boxes, weight=2, node_limit=node_limit)
        moves = None if pushes is None else expand(room, player, boxes, pushes)
    if moves is None:
        return None
    return Solution(tuple(moves), _count_pushes(room, player, boxes, moves))


def _count_pushes(room: Room, player: int, boxes: int, moves: list[int]) -> int:
    pushes = 0
    for direction in moves:
        player, moved = move(room, player, boxes, direction)
        pushes += moved != boxes
        boxes = moved
    return pushes


def difficulty(room: Room, node_limit: int = NODE_LIMIT) -> int | None:
    """Fewest pushes found: exact up to OPTIMAL_BOXES boxes, else an upper bound; None: unsolved."""
    weight = 1 if room.boxes.bit_count() <= OPTIMAL_BOXES else 2
    pushes = solve_pushes(room, room.player, room.boxes, weight=weight, node_limit=node_limit)
    return None if pushes is None else len(pushes)
