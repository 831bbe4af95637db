"""Random nested spaces through whole managers: what an env gives and is given arrives bit for bit.

``test_rows.py`` tries the same on rows alone, with many more examples. Here each example goes through the
dict face (or that of lists) and the array face of every manager; since a launch is what costs, few examples
with many leaves, and several samples of each.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from envmgr import create_env_manager
from envmgr.memory.layout import layout_of
from tests.helpers.envs import ReplayEnv

N, STEPS = 2, 4
SYNC: dict[str, Any] = dict(type="subprocess", num_workers=1)
ASYNC: dict[str, Any] = dict(type="async_subprocess", wait_num=N, step_wait_timeout=None, num_workers=1)
CHEAP: tuple[dict[str, Any], ...] = (
    dict(type="base"),
    dict(type="base_v2"),
    dict(type="subprocess", context="fork"),
    dict(type="subprocess_v2", context="fork", num_workers=1),
    dict(ASYNC, context="fork"),
)
# A launch of these is a fresh interpreter or two.
DEAR = [dict(way, context=context) for way in (SYNC, ASYNC) for context in ("spawn", "forkserver")]
WITHOUT_SHARED_MEMORY = [
    dict(way, context="fork", shared_memory=False) for way in (SYNC, ASYNC, dict(type="subprocess_v2"))
]

DTYPES = st.sampled_from([np.dtype(code).type for code in "?BbHhIiQqefd"])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
SMALL = st.integers(1, 9)

FIXED = st.one_of(
    st.builds(lambda dtype, shape: spaces.Box(0, 1, shape, dtype), DTYPES, SHAPES),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), SMALL, st.integers(-(2**40), 9)),
    st.sampled_from([(1,), (3,), (2, 2)]).map(lambda shape: spaces.MultiDiscrete(np.full(shape, 4))),
    st.builds(lambda n, start: spaces.MultiDiscrete([n, 3], start=[start, 0]), SMALL, st.integers(-9, 9)),
    st.sampled_from([1, 3, (2, 2)]).map(spaces.MultiBinary),
)
# Without a fixed layout: carried beside the rows.
FREE = st.one_of(
    st.just(spaces.Text(5)),
    st.builds(spaces.Sequence, FIXED, stack=st.booleans()),
    st.builds(
        lambda edges: spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3) if edges else None),
        st.booleans(),
    ),
    st.lists(FIXED, min_size=1, max_size=3).map(spaces.OneOf),
)


def nested(leaves: Any, size: int) -> Any:
    """Dicts and tuples, within each other, of these leaves."""
    inner = st.recursive(
        leaves,
        lambda inside: st.one_of(
            st.dictionaries(st.text("abcd", min_size=1, max_size=2), inside, max_size=4).map(spaces.Dict),
            st.lists(inside, max_size=4).map(spaces.Tuple),
        ),
        max_leaves=size,
    )
    return st.one_of(inner, st.lists(inner, min_size=2, max_size=4).map(spaces.Tuple))


def drawn(space: Any, rng: np.random.Generator) -> Any:
    """A value of a space; in a box any bits at all, NaN and infinity too."""
    if isinstance(space, spaces.Dict):
        return {key: drawn(inner, rng) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(drawn(inner, rng) for inner in space.spaces)
    if isinstance(space, spaces.Box) and space.dtype != bool:
        size = int(np.prod(space.shape)) * space.dtype.itemsize
        return np.frombuffer(rng.bytes(size), space.dtype).reshape(space.shape).copy()
    space.seed(int(rng.integers(2**31)))
    return space.sample()


def same(one: Any, two: Any) -> bool:
    """Equal in structure, type, dtype, shape and bits."""
    if isinstance(one, dict):
        return type(two) is dict and list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple | list):
        return type(one) is type(two) and len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray | np.generic):
        alike = isinstance(two, np.ndarray | np.generic) and one.dtype == two.dtype and one.shape == two.shape
        if one.dtype == object:  # its bits are addresses
            return alike and all(map(same, one.flat, two.flat))
        return alike and one.tobytes() == two.tobytes()
    return type(one) is type(two) and bool(one == two)


def stacked(space: Any, values: list[Any]) -> Any:
    """Values as one tree of arrays with a leading axis; of objects, where a leaf has no fixed layout."""
    if isinstance(space, spaces.Dict):
        return {key: stacked(inner, [value[key] for value in values]) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(inner, [value[k] for value in values]) for k, inner in enumerate(space.spaces))
    if not layout_of(space).has_side:
        return np.stack(values)
    out = np.empty(len(values), object)
    for k, value in enumerate(values):
        out[k] = value
    return out


def in_dicts(manager: Any, observations: Any, actions: Any) -> None:
    ready = manager.ready_obs
    for i in range(N):
        assert same(ready[i], observations[i][0]), (ready[i], observations[i][0])
    for t in range(STEPS):
        results = manager.step({i: actions[i][t] for i in range(N)})
        for i in range(N):
            assert same(results[i].obs, observations[i][t + 1]), (results[i].obs, observations[i][t + 1])
    assert_given(manager, actions)


def in_lists(manager: Any, observations: Any, actions: Any) -> None:
    for t in range(STEPS):
        assert same(manager.ready_obs, stacked(manager.observation_space, [obs[t] for obs in observations]))
        for i, result in enumerate(manager.step([actions[i][t] for i in range(N)])):
            assert result.env_id == i
            assert same(result.obs, observations[i][t + 1]), (result.obs, observations[i][t + 1])
    assert_given(manager, actions)


def in_arrays(manager: Any, observations: Any, actions: Any) -> None:
    obs_space, action_space = manager.observation_space, manager.action_space
    obs, _ = manager.reset_arrays()
    assert same(obs, stacked(obs_space, [observations[i][0] for i in range(N)]))
    for t in range(STEPS):
        out = manager.step_arrays(stacked(action_space, [actions[i][t] for i in range(N)]))
        assert sorted(out.env_id) == list(range(N))
        assert same(out.obs, stacked(obs_space, [observations[i][t + 1] for i in out.env_id]))
    assert_given(manager, actions)


def assert_given(manager: Any, actions: Any) -> None:
    for given_, wanted in zip(manager.given, actions, strict=True):
        assert same(given_, wanted), (given_, wanted)


def through(cfgs: Any, observation_space: Any, action_space: Any, seed: int) -> None:
    """Through managers of these configs, each in both of its faces."""
    rng = np.random.default_rng(seed)
    observations = [[drawn(observation_space, rng) for _ in range(STEPS + 1)] for _ in range(N)]
    actions = [[drawn(action_space, rng) for _ in range(STEPS)] for _ in range(N)]
    fns = [partial(ReplayEnv, observation_space, action_space, observations[i]) for i in range(N)]
    for cfg in cfgs:
        with create_env_manager(cfg, fns) as manager:
            manager.launch()
            (in_lists if cfg["type"].endswith("_v2") else in_dicts)(manager, observations, actions)
            in_arrays(manager, observations, actions)


def few(examples: int) -> Any:
    """Not shrunk: that would launch managers for longer than a test may take. What fails is printed whole."""
    return settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


SEEDS = st.integers(0, 2**32 - 1)
# Several in one: the more of them share a launch the better. (The first try of hypothesis is its simplest.)
SEVERAL = (
    st.lists(nested(FIXED | FREE, 12), min_size=4, max_size=6)
    .map(spaces.Tuple)
    .filter(lambda space: len(layout_of(space).leaves) >= 8)
)


@pytest.mark.case("D03", "T02", "T03")
@few(5)
@given(nested(FIXED, 12), nested(FIXED, 6), SEEDS)
def test_spaces_with_a_fixed_layout(observation_space, action_space, seed):
    through(CHEAP, observation_space, action_space, seed)


@pytest.mark.case("D03", "T04")
@few(5)
@given(nested(FIXED | FREE, 12), nested(FIXED | FREE, 6), SEEDS)
def test_spaces_some_of_whose_leaves_have_none(observation_space, action_space, seed):
    through(CHEAP, observation_space, action_space, seed)


@pytest.mark.case("D03", "T02", "T03", "T04")
@pytest.mark.parametrize("cfg", DEAR, ids=lambda cfg: f"{cfg['type']}-{cfg['context']}")
@few(2)
@given(SEVERAL, nested(FIXED | FREE, 6), SEEDS)
def test_in_other_start_methods(cfg, observation_space, action_space, seed):
    through([cfg], observation_space, action_space, seed)


@pytest.mark.case("D03", "T02", "T03", "T04")
@few(3)
@given(SEVERAL, nested(FIXED | FREE, 6), SEEDS)
def test_without_shared_memory(observation_space, action_space, seed):
    through(WITHOUT_SHARED_MEMORY, observation_space, action_space, seed)
