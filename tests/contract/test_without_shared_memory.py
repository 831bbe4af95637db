"""``shared_memory=False``: another way for the bytes. What is checked, cast and given is the same."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.contract.test_side_leaves import Notes
from tests.helpers import envs
from tests.helpers.managers import (
    error_of,
    in_base_and_sync,
    in_processes,
    in_sync,
    many,
    step_until,
    wait_ready,
)
from tests.helpers.sync import wait_until

N, LENGTH = 2, 3
U8 = spaces.Box(0, 255, (2,), np.uint8)
F32 = spaces.Box(-1, 1, (2,), np.float32)


def drawn(space: Any, seed: int) -> Any:
    space.seed(seed)
    return space.sample()


SPACES = {
    "box": U8,
    "number": spaces.Box(-1, 1, (), np.float64),
    "empty": spaces.Box(-1, 1, (0, 3), np.float32),
    "half": spaces.Box(-1, 1, (2, 2), np.float16),
    "bool": spaces.Box(0, 1, (2,), np.bool_),
    "discrete": spaces.Discrete(4, start=-1),
    "multidiscrete": spaces.MultiDiscrete([[3, 4], [5, 6]]),
    "multibinary": spaces.MultiBinary(3),
    "dict": spaces.Dict(z=U8, a=spaces.Dict(b=spaces.Discrete(3)), none=spaces.Dict({})),
    "tuple": spaces.Tuple((F32, spaces.Discrete(3), spaces.Tuple((U8,)))),
    "text": spaces.Text(5),
    "sequence": spaces.Sequence(F32),
    "graph": spaces.Graph(F32, spaces.Discrete(3)),
    "oneof": spaces.OneOf([U8, spaces.Discrete(3)]),
    "own": Notes(),
    "mixed": spaces.Dict(v=F32, t=spaces.Text(5), w=spaces.Tuple((spaces.Sequence(F32), U8)), o=Notes()),
}


class Story(gymnasium.Env):
    """Gives observations one after the other, an episode of LENGTH steps again and again."""

    def __init__(self, env_id: int, space: Any, observations: Any) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(3)
        self.observations, self.k = observations, -1

    def _next(self) -> Any:
        self.k += 1
        return self.observations[self.k % len(self.observations)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self._next(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._next(), 1.0, self.t >= LENGTH, False, {}


def alike(one: Any, two: Any) -> bool:
    """Equal in structure, types, dtypes, shapes and bits."""
    if isinstance(one, dict):
        return type(two) is dict and list(one) == list(two) and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, tuple | list):
        return type(one) is type(two) and len(one) == len(two) and all(map(alike, one, two))
    if isinstance(one, np.ndarray | np.generic):
        if type(one) is not type(two) or one.dtype != two.dtype or one.shape != two.shape:
            return False
        return alike(one.tolist(), two.tolist()) if one.dtype == object else one.tobytes() == two.tobytes()
    return type(one) is type(two) and bool(one == two)


def stories(space: Any, values: Any = None) -> list[Any]:
    lists = [values or [drawn(space, 10 * i + k) for k in range(7)] for i in range(N)]
    return [partial(Story, i, space, lists[i]) for i in range(N)]


def in_dicts(manager: Any) -> Any:
    manager.launch()
    seen = []
    for _ in range(LENGTH + 2):
        ready = wait_ready(manager)
        got = step_until(manager, dict.fromkeys(range(N), 0))
        seen.append(([ready[i] for i in range(N)], [(got[i].obs, bool(got[i].done)) for i in range(N)]))
    return seen


def in_arrays(manager: Any) -> Any:
    manager.launch()
    seen = [manager.reset_arrays()[0]]
    for _ in range(LENGTH + 2):
        order = np.full(N, -1)
        out = manager.step_arrays([0] * N)
        order[out.env_id] = np.arange(N)
        seen.append(
            [_ordered(out.obs, order), sorted(out.final_obs), [out.final_obs.get(i) for i in range(N)]]
        )
    return seen


def _ordered(tree: Any, order: Any) -> Any:
    """Rows in the order of the envs: async gives them in that of their arrival."""
    if isinstance(tree, dict):
        return {key: _ordered(part, order) for key, part in tree.items()}
    return tuple(_ordered(part, order) for part in tree) if isinstance(tree, tuple) else tree[order]


@pytest.mark.case("D03", "T04")
@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("face", [in_dicts, in_arrays])
@in_processes
def test_every_space_is_the_same_serial_by_pipe_and_in_shared_memory(make, face, name):
    fns = stories(SPACES[name])
    serial, shared, sent = (
        face(make(fns, **cfg))
        for cfg in ({"type": "base"}, {"shared_memory": True}, {"shared_memory": False})
    )
    assert alike(serial, shared), (serial, shared)
    assert alike(shared, sent), (shared, sent)


CAST = {
    "python int": (spaces.Discrete(4), 2),
    "number in a dict": (spaces.Dict(a=spaces.Discrete(3)), {"a": 1}),
    "list": (U8, [1, 2]),
    "wider integers": (U8, np.array([1, 2])),
    "list for a tuple": (spaces.Tuple((U8, F32)), [[1, 2], [0.5, 1.0]]),
}


@pytest.mark.case("D03")
@pytest.mark.parametrize("name", CAST)
@pytest.mark.parametrize("face", [in_dicts, in_arrays])
@in_sync
def test_values_are_cast_to_their_space(make, face, name):
    fns = stories(CAST[name][0], [CAST[name][1]])
    assert alike(face(make(fns)), face(make(fns, shared_memory=False)))


WRONG = {
    "too large": (U8, np.array([300, 1])),
    "wrong shape": (U8, np.zeros(3, np.uint8)),
    "none": (U8, None),
    "missing key": (spaces.Dict(a=U8, b=U8), {"a": np.zeros(2, np.uint8)}),
    "masked": (F32, np.ma.array([0.5, 1.0], np.float32, mask=[True, False])),
    "masked leaf": (spaces.Dict(a=F32), {"a": np.ma.array([0.5, 1.0], np.float32, mask=[True, False])}),
}


@pytest.mark.case("D03", "T04")
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("first", [True, False], ids=["reset", "step"])
@in_sync
def test_what_does_not_fit_is_refused_in_the_same_words(make, name, first):
    space, wrong = WRONG[name]
    good = drawn(space, 1)
    values = [wrong] if first else [good, wrong]

    def told(**cfg: Any) -> str:
        manager = make([partial(Story, 0, space, values)], **cfg)

        def go() -> None:
            manager.launch()
            wait_ready(manager)
            step_until(manager, {0: 0})

        return str(error_of(ValueError, go)).splitlines()[0]

    assert told(shared_memory=False) == told(shared_memory=True) == told(type="base")


@pytest.mark.case("D03")
@pytest.mark.parametrize("face", [in_dicts, in_arrays])
@in_processes
def test_float64_is_rounded_into_float32(make, face):
    fns = stories(F32, [np.full(2, 0.1)])
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # a fork writes it to where the others' go: nowhere that is of use here
        shared, sent = face(make(fns)), face(make(fns, shared_memory=False))
    assert alike(shared, sent)


@pytest.mark.case("D09")
@in_processes
def test_what_is_handed_out_is_the_callers_own(make):
    manager = make(many(envs.CounterEnv, N, length=LENGTH), shared_memory=False)
    manager.launch()
    first = wait_ready(manager)
    first[0][:] = -7
    assert manager.ready_obs[0].tolist() == [0, 0, 0]
    results = step_until(manager, {0: 0, 1: 0})
    results[0].obs[:] = -7
    assert manager.ready_obs[0].tolist() == [0, 0, 1]


@pytest.mark.case("D01", "D09")
@in_processes
def test_an_env_may_reuse_its_buffer_and_end_its_episode(make):
    manager = make([partial(Reusing, i) for i in range(N)], shared_memory=False, envs_per_worker=N)
    manager.launch()
    kept = [(manager.reset_arrays()[0], 0)]
    finals = {}
    for t in (1, 2, 0, 1):
        out = manager.step_arrays([0] * N)
        kept.append((out.obs, t))
        finals.update(out.final_obs)
    for obs, t in kept:
        assert obs.tolist() == [[t, t]] * N
    assert {i: obs.tolist() for i, obs in finals.items()} == {i: [LENGTH] * 2 for i in range(N)}


class Reusing(gymnasium.Env):
    """One buffer for all envs of a worker, and for all their observations."""

    buffer = np.zeros(2, np.uint8)
    observation_space, action_space = U8, spaces.Discrete(3)

    def __init__(self, env_id: int) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        self.buffer[:] = 0
        return self.buffer, {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self.buffer[:] = self.t
        return self.buffer, 0.0, self.t >= LENGTH, False, {}


@in_processes
def test_views_are_read_only(make):
    manager = make(many(envs.CounterEnv, N, length=9), shared_memory=False, copy_on_get=False)
    manager.launch()
    wait_ready(manager)
    obs = step_until(manager, {0: 0, 1: 0})[0].obs
    assert obs.tolist() == [0, 0, 1] and not obs.flags.writeable


def test_stacked_ready_observations_of_v2():
    from envmgr import create_env_manager

    cfg = {"type": "subprocess_v2", "context": "fork", "shared_memory": False}
    with create_env_manager(cfg, many(envs.CounterEnv, N)) as manager:
        manager.launch()
        wait_until(lambda: len(manager.ready_obs_id) == N, "all envs to be ready")
        obs = manager.ready_obs
    assert isinstance(obs, np.ndarray) and obs.tolist() == [[0, 0, 0], [1, 0, 0]]


@in_base_and_sync
def test_tensors(make, torch):
    manager = make(many(envs.CounterEnv, N), shared_memory=False, as_torch=True)
    manager.launch()
    obs, _ = manager.reset_arrays()
    assert isinstance(obs, torch.Tensor) and tuple(obs.shape) == (N, 3)
