"""Random nested spaces through whole managers: what an env gives and is given arrives bit for bit.

``test_rows.py`` tries the same on rows alone, with many more examples. Here each example goes through the
dict face and the array face of every manager; since a launch is what costs, few examples with many leaves.
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

N, STEPS = 2, 3
CONFIGS = (
    dict(type="base"),
    dict(type="subprocess", context="fork"),
    dict(type="async_subprocess", context="fork", wait_num=N, step_wait_timeout=None, num_workers=1),
)

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


class Replay:
    """Gives the observations it was handed, one after the other, and keeps the actions that it is given."""

    def __init__(self, observation_space: Any, action_space: Any, observations: list[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.observations, self.given = observations, []

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.given = []
        return self.observations[0], {}

    def step(self, action: Any) -> Any:
        self.given.append(action)
        return self.observations[len(self.given)], 0.0, False, False, {}

    def close(self) -> None:
        pass


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
        return alike and one.tobytes() == two.tobytes()
    return type(one) is type(two) and bool(one == two)


def stacked(values: list[Any]) -> Any:
    """Values of one fixed layout as one tree of arrays with a leading axis."""
    first = values[0]
    if isinstance(first, dict):
        return {key: stacked([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked([value[k] for value in values]) for k in range(len(first)))
    return np.stack(values)


def in_dicts(manager: Any, observations: Any, actions: Any) -> None:
    ready = manager.ready_obs
    for i in range(N):
        assert same(ready[i], observations[i][0]), (ready[i], observations[i][0])
    for t in range(STEPS):
        results = manager.step({i: actions[i][t] for i in range(N)})
        for i in range(N):
            assert same(results[i].obs, observations[i][t + 1]), (results[i].obs, observations[i][t + 1])
    assert_given(manager, actions)


def in_arrays(manager: Any, observations: Any, actions: Any) -> None:
    obs, _ = manager.reset_arrays()
    assert same(obs, stacked([observations[i][0] for i in range(N)]))
    for t in range(STEPS):
        out = manager.step_arrays(stacked([actions[i][t] for i in range(N)]))
        assert same(out.obs, stacked([observations[int(i)][t + 1] for i in out.env_id]))
    assert_given(manager, actions)


def assert_given(manager: Any, actions: Any) -> None:
    for given_, wanted in zip(manager.given, actions, strict=True):
        assert same(given_, wanted), (given_, wanted)


def through_every_manager(observation_space: Any, action_space: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    observations = [[drawn(observation_space, rng) for _ in range(STEPS + 1)] for _ in range(N)]
    actions = [[drawn(action_space, rng) for _ in range(STEPS)] for _ in range(N)]
    fns = [partial(Replay, observation_space, action_space, observations[i]) for i in range(N)]
    fixed = not (layout_of(observation_space).has_side or layout_of(action_space).has_side)
    for cfg in CONFIGS:
        with create_env_manager(cfg, fns) as manager:
            manager.launch()
            in_dicts(manager, observations, actions)
            if fixed:
                in_arrays(manager, observations, actions)


# Not shrunk: that would launch managers for longer than a test may take. What fails is printed as it is.
few = settings(
    max_examples=5,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.case("D03", "T02", "T03")
@few
@given(nested(FIXED, 12), nested(FIXED, 6), SEEDS)
def test_spaces_with_a_fixed_layout(observation_space, action_space, seed):
    through_every_manager(observation_space, action_space, seed)


@pytest.mark.case("D03", "T04")
@few
@given(nested(FIXED | FREE, 12), nested(FIXED | FREE, 6), SEEDS)
def test_spaces_some_of_whose_leaves_have_none(observation_space, action_space, seed):
    through_every_manager(observation_space, action_space, seed)
