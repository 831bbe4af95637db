"""Envs with many agents: rows, the alive mask, ends."""

import functools

import numpy as np
import pytest
from gymnasium import spaces

from envmgr.envs.adapt import adapt
from envmgr.errors import EnvInitError, EnvStepError, SpaceMismatchError


class Leaving:
    """Three agents, of which ``leaves[name]`` is the step in which each leaves (T08).

    The observation of agent k after t steps is ``(k, t)``, its reward ``10 * k + t``.
    """

    metadata = {"name": "leaving"}  # noqa: RUF012 - as PettingZoo has it

    def __init__(self, leaves=(2, 4, 3), truncates=(), keeps_list=True):
        self.possible_agents = ["a", "b", "c"]
        self.leaves = dict(zip(self.possible_agents, leaves, strict=True))
        self.truncates = truncates
        self.given = []
        if keeps_list:
            self.agents = []
        self._spaces = {
            name: (spaces.Box(-9, 99, (2,), np.float32), spaces.Discrete(3 + k, start=k))
            for k, name in enumerate(self.possible_agents)
        }

    @functools.cache  # noqa: B019 - as PettingZoo asks for
    def observation_space(self, agent):
        return self._spaces[agent][0]

    @functools.cache  # noqa: B019
    def action_space(self, agent):
        return self._spaces[agent][1]

    def _obs(self, names):
        return {n: np.array([self.possible_agents.index(n), self.t], np.float32) for n in names}

    def reset(self, seed=None, options=None):
        self.t, self.seed_given = 0, seed
        self.left = []
        if hasattr(self, "agents"):
            self.agents = list(self.possible_agents)
        return self._obs(self.possible_agents), {n: {} for n in self.possible_agents}

    def step(self, actions):
        self.given.append(actions)
        self.t += 1
        here = [n for n in self.possible_agents if n not in self.left]
        over = {n: self.t >= self.leaves[n] for n in here}
        self.left += [n for n in here if over[n]]
        if hasattr(self, "agents"):
            self.agents = [n for n in self.agents if not over[n]]
        return (
            self._obs(here),
            {n: 10.0 * self.possible_agents.index(n) + self.t for n in here},
            {n: over[n] and n not in self.truncates for n in here},
            {n: over[n] and n in self.truncates for n in here},
            {n: {"left": True} if over[n] else {} for n in here},
        )

    def close(self):
        pass


@pytest.mark.parametrize("keeps_list", [True, False])
@pytest.mark.parametrize("agents", [None, "stack", "dict"])
def test_agents_that_leave(agents, keeps_list):
    """T08."""
    env = Leaving(keeps_list=keeps_list)
    adapted = adapt(env, agents=agents)
    assert adapted.style == "pettingzoo"
    assert adapted.reward_shape == (3,) and adapted.reward_dtype == np.float64

    def rows(obs):
        return [obs["obs"][n].tolist() for n in "abc"] if agents == "dict" else obs["obs"].tolist()

    for _ in range(2):
        env.given.clear()
        obs, info = adapted.reset(seed=5)
        assert env.seed_given == 5 and info == {}
        assert rows(obs) == [[0, 0], [1, 0], [2, 0]] and obs["alive"].tolist() == [True] * 3
        assert adapted.observation_space.contains(obs)
        seen = []
        while not seen or not (seen[-1][2] or seen[-1][3]):
            action = adapted.action_space.sample()
            assert adapted.action_space.contains(action)
            seen.append(adapted.step_fn()(action))
            assert adapted.observation_space.contains(seen[-1][0])
        assert [s[0]["alive"].tolist() for s in seen] == [
            [True, True, True],
            [False, True, True],
            [False, True, False],
            [False, False, False],
        ]
        assert [rows(s[0]) for s in seen] == [
            [[0, 1], [1, 1], [2, 1]],
            [[0, 2], [1, 2], [2, 2]],
            [[0, 0], [1, 3], [2, 3]],
            [[0, 0], [1, 4], [0, 0]],
        ]
        assert [s[1].tolist() for s in seen] == [[1, 11, 21], [2, 12, 22], [0, 13, 23], [0, 14, 0]]
        assert [s[2:4] for s in seen] == [(False, False)] * 3 + [(True, False)]
        assert [s[4] for s in seen] == [
            {},
            {"a": {"left": True}},
            {"c": {"left": True}},
            {"b": {"left": True}},
        ]
        assert [set(given) for given in env.given] == [{"a", "b", "c"}, {"a", "b", "c"}, {"b", "c"}, {"b"}]
        for given in env.given:
            for name, action in given.items():
                assert env.action_space(name).contains(action), (name, action)


@pytest.mark.parametrize(
    ("leaves", "truncates", "ends"),
    [
        ((2, 2, 2), "abc", (False, True)),
        ((1, 2, 2), "bc", (False, True)),
        ((2, 2, 2), "a", (True, False)),
        ((2, 2, 2), "", (True, False)),
        ((2, 1, 1), "a", (False, True)),
    ],
)
def test_how_an_episode_ends(leaves, truncates, ends):
    adapted = adapt(Leaving(leaves, truncates))
    adapted.reset()
    action = adapted.action_space.sample()
    assert adapted.step(action)[2:4] == (False, False)
    assert adapted.step(action)[2:4] == ends


def with_spaces(obs, actions=None):
    """An env whose agents have these spaces and give samples of them."""

    class Env(Leaving):
        def __init__(self):
            super().__init__()
            actions_ = actions or [spaces.Discrete(2)] * 3
            self._spaces = dict(zip("abc", zip(obs, actions_, strict=True), strict=True))

        def _obs(self, names):
            return {n: self._spaces[n][0].sample() for n in names}

    return Env()


DICT = spaces.Dict({"o": spaces.Box(0, 255, (2, 2), np.uint8), "mask": spaces.MultiBinary(3)})
STACKABLE = [
    [
        spaces.Box(0, 1, (2,), np.float32),
        spaces.Box(0, 1, (3,), np.float32),
        spaces.Box(0, 1, (1,), np.float32),
    ],
    [spaces.Discrete(3), spaces.Discrete(4, start=2), spaces.Discrete(2)],
    [spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([4]), spaces.MultiDiscrete([2, 2, 2])],
    [spaces.MultiBinary(3), spaces.MultiBinary(2), spaces.MultiBinary(3)],
    [DICT, DICT, DICT],
    [spaces.Tuple((DICT, spaces.Discrete(2)))] * 3,
    [spaces.Box(-1, 1, (), np.float64)] * 3,
]


@pytest.mark.parametrize("kinds", STACKABLE)
def test_what_can_be_stacked_is_and_comes_back_whole(kinds):
    env = with_spaces(kinds, kinds)
    adapted = adapt(env, agents="stack")
    obs, _ = adapted.reset()
    assert adapted.observation_space.contains(obs)
    for space in _leaves(adapted.observation_space.spaces["obs"]):
        assert space.shape[0] == 3
    for _ in range(2):
        adapted.step(adapted.action_space.sample())
    for given in env.given:
        for name, action in given.items():
            assert env.action_space(name).contains(action), (name, action)


def _leaves(space):
    parts = getattr(space, "spaces", None)
    if parts is None:
        return [space]
    return [leaf for part in (parts.values() if isinstance(parts, dict) else parts) for leaf in _leaves(part)]


UNSTACKABLE = [
    [spaces.Discrete(2), spaces.Box(0, 1, (2,)), spaces.Discrete(2)],
    [spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (2, 2)), spaces.Box(0, 1, (2,))],
    [spaces.Box(0, 1, (2,), np.float64), spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (2,))],
    [spaces.Text(3)] * 3,
    [DICT, spaces.Dict({"o": spaces.Discrete(2)}), DICT],
]


@pytest.mark.parametrize("kinds", UNSTACKABLE)
def test_what_cannot_be_stacked_is_a_dict_by_agent(kinds):
    with pytest.raises(EnvInitError, match=r"observation spaces.*cannot be stacked.*agents='dict'"):
        adapt(with_spaces(kinds), agents="stack")
    adapted = adapt(with_spaces(kinds))
    obs, _ = adapted.reset()
    assert set(obs["obs"]) == {"a", "b", "c"}
    assert set(adapted.observation_space.spaces["obs"].spaces) == {"a", "b", "c"}
    for _ in range(4):
        obs, *_ = adapted.step(adapted.action_space.sample())
    assert obs["alive"].tolist() == [False] * 3 and set(obs["obs"]) == {"a", "b", "c"}


def test_spaces_as_dicts_are_understood_too():
    class Env(Leaving):
        observation_space = action_space = None

        @property
        def observation_spaces(self):
            return {name: pair[0] for name, pair in self._spaces.items()}

        @property
        def action_spaces(self):
            return {name: pair[1] for name, pair in self._spaces.items()}

    adapted = adapt(Env())
    assert adapted.reset()[0]["obs"].shape == (3, 2)


def test_values_are_not_cast_on_the_way():
    """A lossy cast would be hidden from whoever writes the row and warns (T01)."""

    class Env(Leaving):
        def _obs(self, names):
            return {n: np.array([0.1, 0.2]) for n in names}

    obs, _ = adapt(Env()).reset()
    assert obs["obs"].dtype == np.float64 and obs["obs"][0, 0] == 0.1


def test_an_observation_of_the_wrong_shape_names_the_agent():
    class Env(Leaving):
        def _obs(self, names):
            return {n: np.zeros(3 if n == "b" else 2, np.float32) for n in names}

    with pytest.raises(SpaceMismatchError, match=r"agent 'b' has shape \(3,\); expected \(2,\)"):
        adapt(Env()).reset()


def test_an_unknown_agent_is_named():
    class Env(Leaving):
        def step(self, actions):
            result = super().step(actions)
            self.agents.append("z")
            return result

    adapted = adapt(Env())
    adapted.reset()
    with pytest.raises(
        EnvStepError, match=r"agent 'z' that is not among its possible_agents \['a', 'b', 'c'\]"
    ):
        adapted.step(adapted.action_space.sample())


def test_agents_that_come_back():
    class Env(Leaving):
        def step(self, actions):
            result = super().step(actions)
            if self.t == 3:
                self.agents, self.left = ["a", "b"], ["c"]
                self.leaves["a"] = 5
            return result

    adapted = adapt(Env((2, 5, 3)))
    adapted.reset()
    alive = [adapted.step(adapted.action_space.sample())[0]["alive"].tolist() for _ in range(5)]
    assert alive == [
        [True, True, True],
        [False, True, True],
        [True, True, False],
        [True, True, False],
        [False, False, False],
    ]


def test_without_possible_agents_it_is_refused():
    env = Leaving()
    env.possible_agents = []
    with pytest.raises(EnvInitError, match="possible_agents"):
        adapt(env)
    with pytest.raises(EnvInitError, match="agents='rows'"):
        adapt(Leaving(), agents="rows")


def test_agents_that_move_one_after_another_are_refused_with_the_way_out():
    class TurnBased(Leaving):
        def agent_iter(self):
            return iter(())

    with pytest.raises(EnvInitError, match="aec_to_parallel"):
        adapt(TurnBased())


def test_attributes_and_close():
    env = Leaving()
    adapted = adapt(env)
    adapted.set("t", 9)
    assert env.t == 9 and adapted.get("metadata") == {"name": "leaving"}
    adapted.close()
