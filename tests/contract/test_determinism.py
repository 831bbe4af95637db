"""The same numbers in every manager, start method and number of envs per worker (R05, section 5)."""

from __future__ import annotations

from functools import partial

import gymnasium
import pytest

from envmgr import create_env_manager
from tests.helpers import envs
from tests.helpers.managers import CONTEXTS, assert_same_stories, many, trajectories

N = 4
EACH_START_METHOD_ONCE = [
    pytest.param(dict(type="subprocess", context="fork", envs_per_worker=4), id="subprocess-fork-4"),
    pytest.param(dict(type="async_subprocess", context="fork"), id="async-fork-1"),
    pytest.param(dict(type="async_subprocess", context="spawn", envs_per_worker=2), id="async-spawn-2"),
    pytest.param(
        dict(type="async_subprocess", context="forkserver", envs_per_worker=4), id="async-forkserver-4"
    ),
]
LAYOUTS = [
    pytest.param(dict(type=t, context=c, envs_per_worker=k), id=f"{t}-{c}-{k}")
    for t in ("subprocess", "async_subprocess")
    for c in CONTEXTS
    for k in (1, 4)
] + [pytest.param(dict(type="async_subprocess", context="fork", num_workers=2), id="async-fork-2-workers")]


def story(env_fns, steps, *, seed=11, n_actions=5, **cfg):
    """What each env lived through, with a manager of this config."""
    if cfg["type"] == "async_subprocess":
        cfg = {"wait_num": 2, "step_wait_timeout": 0, **cfg}
    with create_env_manager(cfg, env_fns) as manager:
        manager.seed(seed)
        manager.launch()
        return trajectories(manager, steps, n_actions)


@pytest.fixture(scope="module")
def seeded_in_base():
    return story(many(envs.SeededEnv, N), 60, type="base")


@pytest.fixture(scope="module")
def cartpole_in_base():
    return story([partial(gymnasium.make, "CartPole-v1")] * N, 120, n_actions=2, type="base")


@pytest.mark.case("R05")
@pytest.mark.parametrize("cfg", EACH_START_METHOD_ONCE)
def test_random_episodes_with_random_sleeps(cfg, seeded_in_base):
    assert_same_stories(seeded_in_base, story(many(envs.SeededEnv, N, sleep=0.0005), 60, **cfg))


@pytest.mark.case("R05", "A11")
@pytest.mark.parametrize("cfg", LAYOUTS)
def test_cartpole(cfg, cartpole_in_base):
    assert any(event[0] == "end" for events in cartpole_in_base.values() for event in events)
    got = story([partial(gymnasium.make, "CartPole-v1")] * N, 120, n_actions=2, **cfg)
    assert_same_stories(cartpole_in_base, got)


def test_another_seed_gives_other_numbers(seeded_in_base):
    other = story(many(envs.SeededEnv, N), 60, seed=12, type="base")
    with pytest.raises(AssertionError):
        assert_same_stories(seeded_in_base, other)


@pytest.mark.case("R05")
@pytest.mark.parametrize("context", CONTEXTS)
def test_with_a_renewal_in_the_middle(context, tmp_path):
    """Env 1's first worker dies in the 7th step of its life; what follows is the same in each run."""
    runs = []
    for k, type_ in enumerate(("subprocess", "async_subprocess")):
        once = str(tmp_path / f"once{k}")
        fns = [
            partial(envs.SeededEnv, i, sleep=0.0005, die_at=7 if i == 1 else None, once=once)
            for i in range(3)
        ]
        runs.append(story(fns, 40, type=type_, context=context, on_error="reset"))
    assert_same_stories(*runs)
    ends = [e for e in runs[0][1] if e[0] == "end"]
    assert sum(abnormal for _, abnormal in ends) == 1
    resets = [e[1]["n"] for e in runs[0][1] if e[0] == "reset"]
    assert len(set(resets)) == len(resets), (
        "the renewed env goes on with a fresh seed, not with episode 0 again"
    )
    untouched = story(many(envs.SeededEnv, 3), 40, type="base")
    for i in (0, 2):
        assert_same_stories({i: untouched[i]}, {i: runs[0][i]})


@pytest.mark.parametrize(
    "cfg",
    [
        dict(type="subprocess", context="fork"),
        dict(type="async_subprocess", context="spawn"),
        dict(type="subprocess", context="forkserver"),
        dict(type="subprocess", context="fork", envs_per_worker=3, isolate_rng=True),
    ],
    ids=["subprocess-fork", "async-spawn", "subprocess-forkserver", "three-a-worker-isolated"],
)
def test_envs_that_draw_from_global_generators(cfg):
    """Seeded from the env's own seed: equal in `base`, with one env per worker, and isolated with several."""
    expected = story(many(envs.GlobalRngEnv, 3), 20, type="base")
    assert_same_stories(expected, story(many(envs.GlobalRngEnv, 3), 20, **cfg))


def test_without_shared_memory(seeded_in_base):
    got = story(many(envs.SeededEnv, N), 60, type="subprocess", context="fork", shared_memory=False)
    assert_same_stories(seeded_in_base, got)
