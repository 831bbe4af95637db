"""The policies that come with the command line."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envmgr.cli.policies import cartpole, random
from envmgr.errors import ConfigError

BOX4 = spaces.Box(-1, 1, (4,), np.float32)


def one_by_one(policy: Any, ids: list[int], obs: Any) -> list[int]:
    return [int(policy([i], obs[k : k + 1])[0]) for k, i in enumerate(ids)]


def observations(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-0.1, 0.1, (n, 4)).astype(np.float32)


@pytest.mark.parametrize("make", [cartpole, random])
def test_an_env_s_actions_do_not_depend_on_the_others(make: Any) -> None:
    ids, rounds = [3, 0, 7, 1], [observations(4, seed) for seed in range(30)]
    together = make(spaces.Discrete(2), BOX4, 5)
    apart = make(spaces.Discrete(2), BOX4, 5)
    batched = [[int(a) for a in together(ids, obs)] for obs in rounds]
    # The second is asked in another order, and one env at a time.
    single = [one_by_one(apart, ids[::-1], obs[::-1])[::-1] for obs in rounds]
    assert batched == single


@pytest.mark.parametrize("make", [cartpole, random])
def test_the_seed_decides(make: Any) -> None:
    def actions(seed: int | None) -> list[int]:
        policy = make(spaces.Discrete(2), BOX4, seed)
        return [int(a) for k in range(40) for a in policy([0, 1], observations(2, k))]

    assert actions(1) == actions(1)
    assert actions(1) != actions(2)
    assert actions(None) != actions(None)


def test_cartpole_balances() -> None:
    env = gymnasium.make("CartPole-v1")
    policy = cartpole(env.action_space, env.observation_space, 0)
    returns = []
    for seed in range(10):
        obs, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy([0], obs[None])[0])
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    assert np.mean(returns) > 300


def test_cartpole_refuses_other_envs() -> None:
    with pytest.raises(ConfigError, match="policy='random' works with any"):
        cartpole(spaces.Discrete(3), BOX4, 0)


def test_random_samples_any_space() -> None:
    space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,))})
    actions = random(space, None, 0)([0, 1], None)
    assert len(actions) == 2
    assert all(space.contains(action) for action in actions)
    assert space.sample  # the env's own space was not seeded
    with pytest.raises(ConfigError, match="can sample"):
        random(None, None, 0)


def test_policies_import_neither_typer_nor_rich() -> None:
    code = (
        "import sys, envmgr.cli.policies, envmgr.cli.env_factory; "
        "print([m for m in ('typer', 'rich', 'gymnasium', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
