"""``AgentEnv/ALFWorld-v0``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from agent_envs.core.env import AgentEnv, Outcome
from agent_envs.core.errors import OptionError, one_of
from agent_envs.core.profile import Profile
from agent_envs.core.seeding import keyed_seed
from agent_envs.envs.alfworld.engine import NOTHING_HAPPENS, Engine
from agent_envs.envs.alfworld.expert import Expert, Knowledge
from agent_envs.envs.alfworld.library import (
    FolderTasks,
    GeneratedTasks,
    file_task_id,
    load_game,
    load_game_file,
    of_types,
    open_tasks,
    read_annotations,
)
from agent_envs.envs.alfworld.profile import PROFILE

SUCCESS_REWARD = 10.0
_ANNOTATION_KEY = 0xA770
_RELEASES: dict[bool, Mapping[str, Any]] = {
    False: {"release": "2.1.3"},
    True: {"release": "2.1.1"},
}


class ALFWorldEnv(AgentEnv):
    """Household tasks in text: find things, clean, heat or cool them, put them where they belong.

    A native engine, byte-equal to TextWorld 1.7.0 + alfworld 0.4.2 in observations, admissible
    commands (and their order), score and success.

    ### Actions
    Text commands, case-sensitive, blanks around them are ignored: ``look``, ``inventory``, ``help``,
    ``go to R``, ``open R``, ``close R``, ``take O from R``, ``move O to R`` (games of release 2.1.1:
    ``put O in/on R``), ``examine X``, ``use O``, ``clean|heat|cool O with R``, ``slice O with K``.
    ``info["admissible_actions"]`` lists all that do something. Any other text answers
    ``Nothing happens.`` and changes nothing, but counts as a step.

    ### Observations
    The engine's feedback. The first one lists the receptacles and ends in the task.

    ### Rewards
    10 when the task is solved, else 0, times ``reward_scale``. An episode that never finishes
    returns 0.

    ### Start and end
    ``reset(seed=s)`` plays the seed's task of the split, ``options={"task_index": i}`` the i-th in
    sorted order, ``options={"game_file": path}`` any ``game.tw-pddl``. ``terminated`` when solved,
    ``truncated`` after ``max_steps``.

    ### Arguments
    * ``split``: ``train``, ``valid_seen`` (140 games) or ``valid_unseen`` (134); real data also has
      ``valid_train``. Generated ``train`` is endless: the seed is the game's index.
    * ``data_dir``: an official download (the folder that holds ``json_2.1.1``, or that folder
      itself), or ``"imported"``; default ``$ALFWORLD_DATA``, else generated games.
    * ``difficulty``: ``toy``, ``easy``, ``medium`` or ``full`` (default) rooms of generated games.
    * ``task_types``: only tasks of these types: names such as ``pick_and_place_simple``, or the
      original's numbers 1 to 6.
    * ``max_steps``: 50; None for no limit.
    * ``privileged``: the expert may look through closed doors.
    * ``annotations``: the task in people's own words where the data has them.
    * ``anchor``: ``"observation"`` (as the seed system) or ``"view"``, which also tells apart
      location, inventory and admissible actions.

    ### Data
    Generated games are original (counts of the official games shape them). Official games belong to
    ALFWorld (MIT) and are read where they lie; nothing is downloaded or executed.

    ### Differences from the original
    * A seed names a task (games in sorted order); in the original a seed picks by the order in which the
      file system lists its folders, so it means other games on other machines.
    * 10 for success, as the seed system pays; the original pays 1.
    * Only the text side: no THOR, no pictures. The scripted expert is our own planner.

    ### Access
    * reads: the package; the folder that ``data_dir`` or ``$ALFWORLD_DATA`` names.
    * writes: an index of official games (names, sizes, dates) in the cache folder.
    * executes: nothing; game files are parsed, actions are text.
    * connects to: nothing.

    ### Versions
    * v0: first version.
    """

    profile: ClassVar[Profile] = PROFILE
    start_options: ClassVar[tuple[str, ...]] = ("game_file",)

    def __init__(
        self,
        *,
        split: str = "train",
        max_steps: int | None = 50,
        reward_scale: float = 1.0,
        difficulty: str | None = None,
        task_types: Iterable[str | int] | None = None,
        data_dir: str | Path | None = None,
        privileged: bool = False,
        annotations: bool = False,
        anchor: str = "observation",
        render_mode: str | None = None,
    ) -> None:
        tasks = open_tasks(data_dir, difficulty)
        if annotations and isinstance(tasks, GeneratedTasks):
            raise OptionError("annotations=True needs real data (data_dir or ALFWORLD_DATA)")
        one_of("anchor", anchor, ("observation", "view"))
        super().__init__(
            of_types(tasks, task_types),
            split=split,
            max_steps=max_steps,
            reward_scale=reward_scale,
            render_mode=render_mode,
        )
        self.library = tasks
        self.privileged, self.annotations, self.anchor = privileged, annotations, anchor
        self._engine: Engine | None = None
        self._known = Knowledge()
        self._task = ""

    @property
    def engine(self) -> Engine:
        """The engine of the current episode."""
        if self._engine is None:
            raise OptionError("no episode yet: call reset() first")
        return self._engine

    @property
    def task(self) -> str:
        return self._task

    def _explicit_task(self, options: Mapping[str, Any]) -> str:
        return file_task_id(str(options["game_file"]))

    def _start(self, task_id: str, seed: int, options: Mapping[str, Any]) -> str:
        path = str(options["game_file"]) if "game_file" in options else None
        game = load_game(self.library, task_id) if path is None else load_game_file(path)
        self._engine, self._known = Engine(game), Knowledge()
        self._task = game.task
        if self.annotations:
            words = self._annotations(task_id, path) or (game.task,)
            self._task = words[keyed_seed(seed, _ANNOTATION_KEY) % len(words)]
        return self._intro()

    def _annotations(self, task_id: str, path: str | None) -> tuple[str, ...]:
        if path is not None:
            return read_annotations(Path(path).parent)
        if isinstance(self.library, FolderTasks):
            return self.library.annotations(task_id)
        return self.engine.game.annotations

    def _intro(self) -> str:
        intro = self.engine.game.intro
        if self._task != self.engine.game.task:
            return intro.removesuffix(self.engine.game.task) + self._task
        return intro

    def _act(self, action: str) -> Outcome:
        engine = self.engine
        command = action.strip()
        feedback = engine.act(command)
        if feedback is None:
            return Outcome(NOTHING_HAPPENS, action_valid=False)
        self._known.note(engine, command)
        won = engine.won
        return Outcome(feedback, SUCCESS_REWARD if won else 0.0, won, won)

    def admissible_actions(self) -> list[str]:
        return self.engine.admissible

    def expert_action(self) -> str:
        return Expert(self.engine, self._known, privileged=self.privileged).command()

    def _anchor(self) -> str:
        observation: str = self._last.observation
        if self.anchor == "observation":
            return observation
        engine = self.engine
        view = (observation, str(engine.location), str(engine.held), *engine.admissible)
        return hashlib.blake2b("\x00".join(view).encode(), digest_size=16).hexdigest()

    def _extra_info(self) -> Mapping[str, Any]:
        """``release``: the command dialect, 2.1.3 (``move``) or 2.1.1 (``put``); F024."""
        return _RELEASES[self.engine.game.legacy]

    def _snapshot(self) -> Any:
        observation = self._last.observation
        return {
            "engine": self.engine.difference(),
            "known": self._known.to_list(),
            "seen": None if observation == self._intro() else observation,
        }

    def _restore(self, snapshot: Any) -> str:
        self.engine.restore(snapshot["engine"])
        self._known = Knowledge.from_list(snapshot["known"], self.engine.game)
        seen = snapshot["seen"]
        if seen is None:
            return self._intro()
        if not isinstance(seen, str):
            raise ValueError("the observation is no text")
        return seen
