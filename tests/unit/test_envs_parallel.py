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


def ends_of(info):
    """Who was terminated and who truncated in a step, by name; None where nobody ended."""
    if not {"terminated", "truncated"} & set(info):
        return None
    flags = info["terminated"], info["truncated"]
    assert all(mask.dtype == np.bool_ and mask.shape == (3,) for mask in flags)
    return tuple("".join(np.array(list("abc"))[mask]) for mask in flags)


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
        assert [ends_of(s[4]) for s in seen] == [None, ("a", ""), ("c", ""), ("b", "")]
        assert [{n: info for n, info in s[4].items() if n in ("a", "b", "c")} for s in seen] == [
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
        ((2, 2, 2), "a", (False, True)),
        ((2, 2, 2), "bc", (False, True)),
        ((2, 2, 2), "", (True, False)),
        ((2, 1, 1), "a", (False, True)),
        ((2, 1, 1), "bc", (True, False)),
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


def changed(change, leaves=(9, 9, 9)):
    """An adapted env of which each step's result is changed: ``change(obs, rewards, te, tr, infos)``."""

    class Env(Leaving):
        def step(self, actions):
            result = super().step(actions)
            change(*result)
            return result

    adapted = adapt(Env(leaves))
    adapted.reset()
    return lambda: adapted.step(adapted.action_space.sample())


@pytest.mark.case("T08", "D04")
@pytest.mark.parametrize("agents", ["stack", "dict"])
@pytest.mark.parametrize("keeps_list", [True, False])
def test_who_was_terminated_and_who_truncated_is_in_the_info(agents, keeps_list):
    """Two end in one step, in both ways; then the last one."""
    adapted = adapt(Leaving((2, 2, 3), "bc", keeps_list), agents)
    adapted.reset()
    steps = [adapted.step(adapted.action_space.sample()) for _ in range(3)]
    assert [ends_of(s[4]) for s in steps] == [None, ("a", "b"), ("", "c")]
    assert [s[2:4] for s in steps] == [(False, False), (False, False), (False, True)]


@pytest.mark.case("T08", "D04")
def test_an_agent_that_is_both_is_told_as_both():
    step = changed(lambda obs, rewards, te, tr, infos: tr.update(te), leaves=(1, 2, 2))
    first, last = step(), step()
    assert ends_of(first[4]) == ("a", "a") and ends_of(last[4]) == ("bc", "bc")
    assert last[2:4] == (True, True)


@pytest.mark.case("T08", "D04")
def test_flags_of_those_who_left_before_say_nothing_of_this_step():
    def sticky(obs, rewards, te, tr, infos):
        te["a"] = True  # from the first step on, as some envs keep them

    step = changed(sticky, leaves=(1, 2, 9))
    assert [ends_of(step()[4]) for _ in range(3)] == [("a", ""), ("b", ""), None]


@pytest.mark.case("T08")
@pytest.mark.parametrize("value", ["no", [False], np.array([True, False])], ids=["text", "list", "two"])
@pytest.mark.parametrize(("leaf", "what"), [(2, "terminated"), (3, "truncated")])
def test_a_flag_that_says_nothing_is_told_with_its_agent(value, leaf, what):
    step = changed(lambda *result: result[leaf].update(b=value), leaves=(9, 9, 9))
    with pytest.raises(SpaceMismatchError, match=f"{what} of agent 'b': expected one truth value, got"):
        step()


@pytest.mark.case("T08")
def test_who_leaves_without_a_word_is_terminated():
    class Env(Leaving):
        def step(self, actions):
            self.agents = []
            return {}, {}, {}, {}, {}

    adapted = adapt(Env())
    adapted.reset()
    obs, reward, *ends, info = adapted.step(adapted.action_space.sample())
    assert not obs["obs"].any() and not obs["alive"].any() and reward.tolist() == [0, 0, 0]
    assert ends == [True, False] and ends_of(info) == ("abc", "")


@pytest.mark.case("T08")
@pytest.mark.parametrize(
    "of", [lambda r: np.array([r]), lambda r: np.array([[r]], np.float32), np.float32, int, lambda r: [r]]
)
def test_a_reward_of_one_element_is_a_number(of):
    def change(obs, rewards, te, tr, infos):
        rewards.update({name: of(reward) for name, reward in rewards.items()})

    reward = changed(change)()[1]
    assert reward.tolist() == [1, 11, 21] and reward.dtype == np.float64


@pytest.mark.case("T08")
@pytest.mark.parametrize(
    ("reward", "says"),
    [
        (np.zeros(2), r"reward of agent 'b' has shape \(2,\); expected a number"),
        (np.zeros(0), r"reward of agent 'b' has shape \(0,\)"),
        (None, r"reward of agent 'b' is None, and the agent acted.*0\.0"),
        ("much", r"reward of agent 'b' is str \(much\); expected a number"),
        (1j, r"reward of agent 'b' is complex"),
    ],
)
def test_a_reward_that_is_no_number_names_the_agent(reward, says):
    with pytest.raises(SpaceMismatchError, match=says):
        changed(lambda obs, rewards, te, tr, infos: rewards.update(b=reward))()


@pytest.mark.case("T08")
def test_a_missing_reward_of_an_agent_that_is_alive_names_it():
    with pytest.raises(SpaceMismatchError, match="reward of agent 'c' is missing"):
        changed(lambda obs, rewards, te, tr, infos: rewards.pop("c"))()


@pytest.mark.case("T08")
@pytest.mark.parametrize("nothing", [None, "missing"])
def test_who_has_left_needs_no_reward_and_no_observation(nothing):
    def change(obs, rewards, te, tr, infos):
        acted = rewards.pop("a", None) is not None
        obs.pop("a", None)
        if nothing is None:
            obs["a"] = None
            if not acted:
                rewards["a"] = None

    step = changed(change, leaves=(1, 9, 9))
    for t in (1, 2):
        obs, reward, *_ = step()
        assert obs["obs"].tolist() == [[0, 0], [1, t], [2, t]]
        assert obs["alive"].tolist() == [False, True, True] and reward.tolist() == [0, 10 + t, 20 + t]


@pytest.mark.case("T08")
def test_a_last_reward_of_none_is_an_error_too():
    with pytest.raises(SpaceMismatchError, match="reward of agent 'a' is None, and the agent acted"):
        changed(lambda obs, rewards, te, tr, infos: rewards.update(a=None), leaves=(1, 9, 9))()


@pytest.mark.case("T08")
@pytest.mark.parametrize("agents", ["stack", "dict"])
@pytest.mark.parametrize("nothing", [None, "missing"])
def test_an_agent_that_is_alive_and_has_no_observation_is_named(agents, nothing):
    class Env(Leaving):
        def _obs(self, names):
            obs = super()._obs(names)
            if self.t == self.bad:
                obs["b"] = None
                if nothing == "missing":
                    del obs["b"]
            return obs

    env = Env()
    env.bad = 0
    adapted = adapt(env, agents)
    with pytest.raises(
        SpaceMismatchError, match=f"observation of agent 'b' is {nothing}, and the agent is al"
    ):
        adapted.reset()
    env.bad = 1
    adapted.reset()
    with pytest.raises(SpaceMismatchError, match=f"observation of agent 'b' is {nothing}"):
        adapted.step(adapted.action_space.sample())


@pytest.mark.case("T08")
@pytest.mark.parametrize("infos", [None, "text", {"a": "text", "b": None, "c": np.arange(2)}])
def test_infos_that_are_no_dicts(infos):
    class Env(Leaving):
        def step(self, actions):
            return *super().step(actions)[:4], infos

    adapted = adapt(Env((9, 9, 9)))
    adapted.reset()
    info = adapted.step(adapted.action_space.sample())[4]
    if isinstance(infos, dict):
        assert set(info) == {"a", "c"} and info["a"] == "text" and info["c"].tolist() == [0, 1]
    else:
        assert info == ({} if infos is None else {"info": "text"})


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
                result[0].update(self._obs("a"))  # it did not act, so no reward is due to it
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
