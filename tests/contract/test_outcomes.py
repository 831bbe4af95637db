"""What an env returned that is no plain step: odd rewards, infos of every kind, ends that are no booleans.

Where an env is reset at once (the array face), what it said of the end is as it was when ``step`` returned.
"""

from __future__ import annotations

import threading
import types
import warnings
from collections import OrderedDict, UserDict, defaultdict
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envmgr import EnvManagerError, EnvManagerWarning, EnvStepError, SpaceMismatchError
from tests.helpers import envs
from tests.helpers.ids import stable_repr
from tests.helpers.managers import actions_for, in_base_and_sync, launch_all, many, step_until, wait_ready

FACES = pytest.mark.parametrize("face", ["dict", "array"])


class ReusingEnv(gymnasium.Env):
    """Keeps one buffer and one info for all its life, as simulators do."""

    observation_space = spaces.Dict(
        box=spaces.Box(-9, 99, (1,), np.float32), side=spaces.Sequence(spaces.Box(-9, 99, (1,), np.float32))
    )
    action_space = spaces.Discrete(2)

    def __init__(self, env_id: int = 0, first_info: Any = None, padding: int = 0) -> None:
        self.pos = np.zeros(1, np.float32)
        self.info: dict[str, Any] = {"pos": self.pos, "nested": {"n": 0}, "padding": "x" * padding}
        self.first_info = first_info or {}

    def _obs(self) -> dict[str, Any]:
        return {"box": self.pos, "side": (self.pos,)}

    def reset(self, **_: Any) -> Any:
        self.pos[:] = 0
        self.info["nested"]["n"] = 0
        return self._obs(), self.first_info

    def step(self, action: Any) -> Any:
        self.pos += 1
        self.info["nested"]["n"] += 1
        return self._obs(), 1.0, bool(self.pos[0] >= 3), False, self.info


class ReturningEnv(envs.CounterEnv):
    """Returns what ``make(t)`` gives, a dict of what is to be another value than ``CounterEnv``'s."""

    def __init__(self, env_id: int = 0, make: Any = None, first_info: Any = None, **kwargs: Any) -> None:
        super().__init__(env_id, **kwargs)
        self.make, self.first_info = make, first_info

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return obs, (info if self.first_info is None else self.first_info())

    def step(self, action: Any) -> Any:
        names = ("obs", "reward", "terminated", "truncated", "info")
        given = dict(zip(names, super().step(action), strict=True))
        return tuple((given | self.make(self.t)).values())


def told(seen: Any) -> list[str]:
    """The texts of envmgr's own warnings."""
    return [str(w.message) for w in seen if issubclass(w.category, EnvManagerWarning)]


def started(make: Any, face: str, env_fns: Any, **cfg: Any) -> Any:
    """A manager that can be stepped by a face."""
    manager = make(env_fns, **cfg)
    manager.launch()
    if face == "array":
        manager.reset_arrays()
    else:
        wait_ready(manager)
    return manager


def stepped(manager: Any, face: str) -> dict[int, tuple[Any, Any]]:
    """Steps every env once: its reward and its info."""
    if face == "dict":
        got = step_until(manager, actions_for(range(manager.env_num)))
        return {i: (ts.reward, ts.info) for i, ts in got.items()}
    out = manager.step_arrays([0] * manager.env_num)
    return {i: (out.reward[k], out.info.get(i, {})) for k, i in enumerate(np.asarray(out.env_id).tolist())}


class TestTheEndOfAnEpisode:
    @pytest.mark.case("D01", "D04")
    @pytest.mark.parametrize("first_info", [None, {"first": 1}], ids=["no reset info", "reset info"])
    @pytest.mark.parametrize("padding", [0, 5000], ids=["small", "large"])
    def test_is_told_as_it_was_before_the_reset(self, make, first_info, padding):
        manager = started(make, "array", many(ReusingEnv, 2, first_info=first_info, padding=padding))
        for t in [1, 2, 3] * 2:
            out = manager.step_arrays([0, 0])
            for i in (0, 1):
                info = out.info[i]
                assert info["pos"].tolist() == [t] and info["nested"] == {"n": t}
                assert len(info["padding"]) == padding
                assert info.get("reset_info") == (first_info if t == 3 else None)
            assert set(out.final_obs) == ({0, 1} if t == 3 else set())
            for last in out.final_obs.values():
                assert last["box"].tolist() == [3] and [part.tolist() for part in last["side"]] == [[3]]

    @pytest.mark.case("O21")
    def test_loses_only_the_key_of_a_reset_info_that_does_not_pickle(self, make):
        fns = many(ReturningEnv, 1, make=lambda t: {"info": {"t": t}}, length=1, first_info=lockful)
        manager = make(fns)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            manager.launch()
            _, info = manager.reset_arrays()
            assert info == {0: {"good": 1}}
            for _ in range(3):
                assert manager.step_arrays([0]).info == {0: {"t": 1, "reset_info": {"good": 1}}}
        texts = told(seen)
        assert len([text for text in texts if "env 0: reset_info['lock'] does not pickle" in text]) == 1, (
            texts
        )

    @pytest.mark.case("O21")
    def test_says_nothing_of_a_reset_info_of_which_nothing_is_left(self, make):
        fns = many(ReturningEnv, 1, make=lambda t: {"info": {}}, length=1, first_info=only_a_lock)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            manager = started(make, "array", fns)
            assert manager.step_arrays([0]).info == {}

    @pytest.mark.case("O21")
    def test_or_it_is_an_error_of_the_reset(self, make):
        fns = many(ReturningEnv, 1, make=lambda t: {}, length=1, first_info=lockful_later())
        manager = started(make, "array", fns, info_errors="raise")
        with pytest.raises(SpaceMismatchError, match=r"env 0, reset.*reset_info\['lock'\]"):
            manager.step_arrays([0])


def lockful() -> dict[str, Any]:
    return {"lock": threading.Lock(), "good": 1}


def only_a_lock() -> dict[str, Any]:
    return {"lock": threading.Lock()}


def lockful_later() -> Any:
    """Good at the first reset."""
    calls: list[int] = []

    def first_info() -> dict[str, Any]:
        calls.append(1)
        return {} if len(calls) == 1 else lockful()

    return first_info


def box(dtype: Any, shape: tuple[int, ...] = ()) -> Any:
    low, high = (0, 200) if np.dtype(dtype).kind == "u" else (-100, 100)
    return spaces.Box(low, high, shape, dtype)


REFUSED = [
    (0.7, box(np.int64)),
    ([0.7], box(np.int64, (1,))),
    (300, box(np.uint8)),
    (np.nan, box(np.int64)),
    (1e300, box(np.float32)),
    (10**400, None),
]
TAKEN = [
    (2.0, box(np.int64)),
    (0.1, box(np.float32)),
    (-7, None),
    ([0.5], None),
    ([1, 2, 3], box(np.float32, (3,))),
]


class TestARewardThat:
    @FACES
    @pytest.mark.case("D01")
    @pytest.mark.parametrize(("reward", "space"), REFUSED, ids=stable_repr)
    @in_base_and_sync
    def test_does_not_fit_its_space_is_an_error(self, make, face, reward, space):
        fns = [partial(envs.RewardEnv, 0, make_reward=lambda t: reward, reward_space=space)]
        manager = started(make, face, fns)
        with pytest.raises(SpaceMismatchError, match=r"(?s)env 0.*reward") as caught:
            stepped(manager, face)
        assert caught.value.env_id == 0

    @FACES
    @pytest.mark.case("D01")
    @pytest.mark.parametrize(("reward", "space"), TAKEN, ids=stable_repr)
    @in_base_and_sync
    def test_fits_is_what_it_was(self, make, face, reward, space):
        fns = [partial(envs.RewardEnv, 0, make_reward=lambda t: reward, reward_space=space)]
        got, info = stepped(started(make, face, fns), face)[0]
        dtype, shape = (np.dtype(np.float64), ()) if space is None else (space.dtype, space.shape)
        expected = np.asarray(reward).astype(dtype)
        if face == "array":
            assert got.dtype == dtype and got.shape == shape
            expected = expected.reshape(shape)
        assert np.array_equal(np.asarray(got, dtype), expected, equal_nan=True) and info == {}

    def test_is_rounded_is_told_of_once(self, make):
        fns = many(envs.RewardEnv, 1, make_reward=_a_tenth, reward_space=box(np.float32))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            manager = started(make, "dict", fns)
            for _ in range(3):
                assert stepped(manager, "dict")[0][0] == np.float32(0.1)
        assert len(told(seen)) == 1 and "float64" in told(seen)[0], told(seen)

    def test_has_another_shape_is_never_a_number_in_the_array_face(self, make):
        space = box(np.int64)
        make_step = partial(_vector, info={"reward": "mine"})
        fns = [
            partial(ReturningEnv, 0, make=make_step),
            partial(ReturningEnv, 1, make=lambda t: {"info": {}}),
            partial(ReturningEnv, 2, make=partial(_vector, info={})),
        ]
        manager = make(fns)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            manager.launch()
            manager.reset_arrays()
            for t in (1, 2, 3):
                got = stepped(manager, "array")
                assert np.isnan(got[0][0]) and np.isnan(got[2][0]) and got[1] == (100 + t, {})
                assert got[0][1]["reward"] == "mine" and got[0][1]["own_reward"].tolist() == [t, 2 * t]
                assert set(got[2][1]) == {"reward"} and got[2][1]["reward"].tolist() == [t, 2 * t]
        texts = sorted(told(seen))
        assert len(texts) == 2 and all("reward_space" in text and "NaN" in text for text in texts), texts
        assert texts[0].startswith("env 0:") and texts[1].startswith("env 2:")
        integers = partial(envs.RewardEnv, 0, make_reward=lambda t: [t, t], reward_space=space)
        manager = started(make, "array", [integers])
        with pytest.warns(EnvManagerWarning, match="its row is 0"):
            assert stepped(manager, "array")[0][0] == 0

    def test_has_another_shape_is_the_envs_own_in_the_dict_face(self, make):
        manager = make.launched([partial(ReturningEnv, 0, make=partial(_vector, info={"reward": "mine"}))])
        for t in (1, 2):
            reward, info = stepped(manager, "dict")[0]
            assert reward.tolist() == [t, 2 * t] and info == {"reward": "mine"}


def _a_tenth(t: int) -> Any:
    return np.float64(0.1)


def _vector(t: int, info: Any) -> dict[str, Any]:
    return {"reward": np.array([1.0, 2.0]) * t, "info": dict(info)}


class Nameless:
    """Says of itself that it has no truth value, as a data frame does."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nameless)

    def __hash__(self) -> int:
        return 0


MAPPINGS = [
    types.MappingProxyType({"a": 1}),
    UserDict({"a": 1}),
    OrderedDict(a=1),
    defaultdict(lambda: 3, a=1),
]


class TestAnInfoThat:
    @FACES
    @pytest.mark.parametrize("info_errors", ["drop", "raise"])
    @pytest.mark.parametrize("info", MAPPINGS, ids=lambda info: type(info).__name__)
    @pytest.mark.parametrize("length", [9, 1], ids=["midway", "at an end"])
    @in_base_and_sync
    def test_is_a_mapping_becomes_a_dict(self, make, face, info, info_errors, length):
        fns = [partial(ReturningEnv, 0, make=lambda t: {"info": info}, length=length)]
        _, got = stepped(started(make, face, fns, info_errors=info_errors), face)[0]
        assert isinstance(got, dict) and got == {"a": 1}

    @FACES
    @pytest.mark.parametrize("num_workers", [None, 1])
    @pytest.mark.parametrize(
        "info", [np.array([1, 2]), Nameless(), ["a", 1], "text"], ids=lambda info: type(info).__name__
    )
    def test_is_no_dict_arrives_as_it_is(self, make, face, info, num_workers):
        make_step = partial(_from_the_second_on, info=info)
        fns = [partial(ReturningEnv, 0, make=make_step), partial(envs.CounterEnv, 1)]
        manager = started(make, face, fns, num_workers=num_workers)
        for t in (1, 2, 3):
            got = stepped(manager, face)
            assert got[1] == (100 + t, {}) and got[0][0] == t
            arrived = got[0][1]
            assert type(arrived) is (type(info) if t > 1 else dict)
            if t > 1:
                assert np.array_equal(arrived, info)

    def test_has_no_truth_value_is_no_trouble_at_an_end(self, make):
        make_step = partial(_from_the_second_on, info=np.array([1, 2]))
        manager = started(make, "array", [partial(ReturningEnv, 0, make=make_step, length=2)])
        for _ in range(2):
            manager.step_arrays([0])
            out = manager.step_arrays([0])
            assert out.terminated.tolist() == [True] and out.info[0]["info"].tolist() == [1, 2]

    def test_is_a_mapping_of_a_reset_becomes_a_dict(self, make):
        first_info = partial(types.MappingProxyType, {"a": 1})
        manager = make([partial(ReturningEnv, 0, make=lambda t: {}, first_info=first_info, length=1)])
        launch_all(manager)
        assert manager.ready_info == {0: {"a": 1}}
        manager.reset_arrays()
        assert manager.step_arrays([0]).info == {0: {"reset_info": {"a": 1}}}

    @FACES
    @pytest.mark.case("O21")
    def test_does_not_pickle_and_is_no_mapping_is_dropped_with_one_warning(self, make, face):
        make_step = partial(_from_the_second_on, info=None)
        fns = [partial(ReturningEnv, 0, make=make_step, length=99)]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            manager = started(make, face, fns)
            for t in (1, 2, 3):
                assert stepped(manager, face)[0] == (t, {})
        texts = told(seen)
        assert len(texts) == 1 and "env 0: info (generator" in texts[0] and "dropped" in texts[0], texts

    @FACES
    @pytest.mark.case("O21")
    def test_or_it_is_an_error(self, make, face):
        make_step = partial(_from_the_second_on, info=None)
        manager = started(make, face, [partial(ReturningEnv, 0, make=make_step)], info_errors="raise")
        stepped(manager, face)
        with pytest.raises(SpaceMismatchError, match=r"(?s)env 0.*pickle.*info \(generator"):
            stepped(manager, face)


def _from_the_second_on(t: int, info: Any) -> dict[str, Any]:
    """A generator for None, which could not be sent to the worker."""
    return {"info": {} if t == 1 else (x for x in ()) if info is None else info}


class ChangingEnv(envs.CounterEnv):
    """Returns ``first`` values in its first step, and ``then`` in later ones."""

    def __init__(self, env_id: int = 0, first: int = 5, then: int = 4) -> None:
        super().__init__(env_id)
        self.counts = first, then

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        count = self.counts[self.t > 1]
        if count == 4:
            return obs, reward, terminated, info
        return (obs, reward, terminated, truncated, info, None)[:count]


class SayingEnv(envs.CounterEnv):
    """Says of each step that its episode is over, as ``done`` and in the form that is asked for."""

    def __init__(self, env_id: int, style: str, done: Any) -> None:
        super().__init__(env_id)
        self.style, self.done = style, done

    def step(self, action: Any) -> Any:
        obs, reward, _, _, info = super().step(action)
        if self.style == "five":
            return obs, reward, self.done, False, info
        if self.style == "four":
            return obs, reward, self.done, info
        return types.SimpleNamespace(obs=obs, reward=reward, done=self.done, info=info)


class TestAStepThatReturns:
    @FACES
    @pytest.mark.parametrize("name", ["terminated", "truncated"])
    @pytest.mark.parametrize("value", [[True, False], [False, False]], ids=str)
    @in_base_and_sync
    def test_several_ends_is_told_which_and_what_was_expected(self, make, face, name, value):
        fns = [partial(envs.CounterEnv, 0), partial(ReturningEnv, 1, make=partial(_ends, name, value))]
        manager = started(make, face, fns)
        expected = (
            rf"(?s)env 1.*{name}: expected one truth value.*\(obs, reward, terminated, truncated, info\)"
        )
        with pytest.raises(SpaceMismatchError, match=expected):
            stepped(manager, face)

    @FACES
    @pytest.mark.parametrize("style", ["five", "four", "object"])
    @pytest.mark.parametrize("value", ["no", [False], {"agent": False}, len], ids=str)
    @in_base_and_sync
    def test_an_end_that_is_true_and_says_nothing_is_told(self, make, face, style, value):
        fns = [partial(envs.CounterEnv, 0), partial(SayingEnv, 1, style=style, done=value)]
        manager = started(make, face, fns)
        got = type(value).__name__
        name = "terminated" if style == "five" else "done"
        with pytest.raises(
            SpaceMismatchError, match=rf"(?s)env 1.*{name}: expected one truth value, got {got}"
        ):
            stepped(manager, face)

    def test_one_end_in_an_array_is_taken(self, make):
        manager = started(make, "array", [partial(ReturningEnv, 0, make=partial(_ends, "truncated", [True]))])
        out = manager.step_arrays([0])
        assert out.truncated.tolist() == [True] and out.terminated.tolist() == [False]

    @FACES
    @pytest.mark.parametrize(("first", "then"), [(5, 4), (5, 3), (5, 6), (4, 5)])
    @in_base_and_sync
    def test_another_number_of_values_later_is_told_what_to_return(self, make, face, first, then):
        manager = started(make, face, [partial(ChangingEnv, 0, first=first, then=then)])
        stepped(manager, face)
        words = "obs, reward, terminated, truncated, info" if first == 5 else "obs, reward, done, info"
        with pytest.raises(EnvStepError, match=rf"(?s)env 0.*number of values.*\({words}\)"):
            stepped(manager, face)

    @FACES
    @pytest.mark.parametrize("num_workers", [None, 1])
    def test_rubbish_spoils_no_other_env(self, make, face, num_workers):
        fns = [
            partial(envs.CounterEnv, 0),
            partial(ReturningEnv, 1, make=_bad_at_two),
            partial(ChangingEnv, 2),
        ]
        manager = started(make, face, fns, on_error="reset", num_workers=num_workers)
        assert {i: reward for i, (reward, _) in stepped(manager, face).items()} == {0: 1, 1: 101, 2: 201}
        got = stepped(manager, face)
        assert got[0][0] == 2 and got[1][1]["abnormal"] and got[2][1]["abnormal"]
        assert all(isinstance(got[i][1]["err"], EnvManagerError) for i in (1, 2))


def _ends(name: str, value: list[bool], t: int) -> dict[str, Any]:
    return {name: np.array(value)}


def _bad_at_two(t: int) -> dict[str, Any]:
    return {"truncated": np.array([True, False])} if t == 2 else {}
