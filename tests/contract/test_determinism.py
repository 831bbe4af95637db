"""The same numbers in every manager, start method and number of envs per worker (R05, section 5)."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import gymnasium
import pytest

from envmgr import create_env_manager
from tests.helpers import envs
from tests.helpers.managers import CONTEXTS, array_trajectories, assert_same_stories, many, trajectories

N, STEPS, SEED = 4, 60, 11
LAYOUTS = [
    pytest.param(dict(type=t, context=c, envs_per_worker=k), id=f"{t}-{c}-{k}")
    for t in ("subprocess", "async_subprocess")
    for c in CONTEXTS
    for k in (1, 2, 4)
]
EACH_START_METHOD_ONCE = [
    pytest.param(dict(type="subprocess", context="fork", envs_per_worker=4), id="subprocess-fork-4"),
    pytest.param(dict(type="async_subprocess", context="fork", num_workers=2), id="async-fork-2-workers"),
    pytest.param(dict(type="async_subprocess", context="spawn"), id="async-spawn-1"),
    pytest.param(
        dict(type="subprocess", context="forkserver", envs_per_worker=2), id="subprocess-forkserver-2"
    ),
]


in_dicts = partial(trajectories, infos=True)


@contextmanager
def launched(env_fns, seed=SEED, **cfg):
    """A manager of this config, seeded and launched."""
    if cfg["type"] == "async_subprocess":
        cfg = {"wait_num": 2, "step_wait_timeout": 0, **cfg}
    with create_env_manager(cfg, env_fns) as manager:
        manager.seed(seed)
        manager.launch()
        yield manager


def story(env_fns, steps, *, n_actions=5, face=in_dicts, **cfg):
    """What each env lived through, with a manager of this config."""
    with launched(env_fns, **cfg) as manager:
        return face(manager, steps, n_actions)


@pytest.fixture(scope="module")
def seeded_in_base():
    return story(many(envs.SeededEnv, N), STEPS, type="base")


@pytest.fixture(scope="module")
def cartpole_in_base():
    return story([partial(gymnasium.make, "CartPole-v1")] * N, 120, n_actions=2, type="base")


@pytest.mark.case("R05")
@pytest.mark.parametrize("cfg", LAYOUTS)
def test_random_episodes_with_random_sleeps_in_both_faces(cfg, seeded_in_base):
    """The seed begins the same story anew, so that the second face needs no second launch."""
    with launched(many(envs.SeededEnv, N, sleep=0.0005), **cfg) as manager:
        assert_same_stories(seeded_in_base, in_dicts(manager, STEPS))
        manager.seed(SEED)
        assert_same_stories(seeded_in_base, array_trajectories(manager, STEPS))


@pytest.mark.case("R05", "A11")
@pytest.mark.parametrize("cfg", EACH_START_METHOD_ONCE)
def test_cartpole(cfg, cartpole_in_base):
    assert any(event[0] == "end" for events in cartpole_in_base.values() for event in events)
    got = story([partial(gymnasium.make, "CartPole-v1")] * N, 120, n_actions=2, **cfg)
    assert_same_stories(cartpole_in_base, got)


def test_another_seed_gives_other_numbers(seeded_in_base):
    other = story(many(envs.SeededEnv, N), STEPS, seed=12, type="base")
    with pytest.raises(AssertionError):
        assert_same_stories(seeded_in_base, other)


@pytest.mark.case("R05", "A09")
@pytest.mark.parametrize("context", CONTEXTS)
def test_with_renewals_in_the_middle(context, tmp_path):
    """Env 1's first worker dies in the 7th step of its life; after six episodes each env gets a new one
    (where a new one is not a fresh interpreter: six of these would take too long).

    What follows is the same in each run, and for the envs that do not die the same as in `base`.
    """
    age = None if context == "spawn" else 6
    ways = [("subprocess", in_dicts), ("async_subprocess", in_dicts)]
    if context == "fork":
        ways += [("subprocess", array_trajectories), ("async_subprocess", array_trajectories)]
    runs = []
    for k, (type_, face) in enumerate(ways):
        once = str(tmp_path / f"once{k}")
        fns = [
            partial(envs.SeededEnv, i, sleep=0.0005, die_at=7 if i == 1 else None, once=once)
            for i in range(3)
        ]
        runs.append(story(fns, 40, face=face, type=type_, context=context, on_error="reset", renew_every=age))
    for run in runs[1:]:
        assert_same_stories(runs[0], run)
    ends = [e for e in runs[0][1] if e[0] == "end"]
    assert sum(abnormal for _, abnormal in ends) == 1
    resets = [[e[1]["n"] for e in events if e[0] == "reset"] for events in runs[0].values()]
    assert all(len(firsts) > 6 for firsts in resets), "every env has come of age"
    assert all(len(set(firsts)) == len(firsts) for firsts in resets), (
        "a renewed env goes on with a fresh seed, not with episode 0 again"
    )
    untouched = story(many(envs.SeededEnv, 3), 40, type="base", renew_every=age)
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
    got = story(many(envs.SeededEnv, N), STEPS, type="subprocess", context="fork", shared_memory=False)
    assert_same_stories(seeded_in_base, got)
