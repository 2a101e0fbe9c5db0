"""Runs with OpenEnv's own server, in its venv: a guessing game, for our adapter. No agent_envs here.

python openenv_server.py PORT
"""

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    number: int


class Hint(Observation):
    message: str


class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **options):
        self._secret = random.Random(seed).randint(1, 50)
        self._state = State(episode_id=episode_id, step_count=0)
        return Hint(message="from 1 to 50")

    def step(self, action, timeout_s=None, **options):
        self._state.step_count += 1
        if action.number < 0:
            raise RuntimeError("no negative numbers")
        hit = action.number == self._secret
        word = "hit" if hit else "higher" if action.number < self._secret else "lower"
        return Hint(message=word, reward=float(hit), done=hit or self._state.step_count >= 8)

    @property
    def state(self):
        return self._state


if __name__ == "__main__":
    app = create_fastapi_app(Game, Guess, Hint, max_concurrent_envs=16)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
