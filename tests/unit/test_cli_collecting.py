"""The loop of ``envmgr run``, on a manager without processes; what it must not favour, on real ones."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from envmgr.cli.collecting import Collection, PolicyError
from envmgr.cli.plan import split
from tests.helpers.envs import CounterEnv
from tests.helpers.fake_manager import FakeManager
from tests.helpers.managers import Maker, in_processes, making


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Makes managers with real workers."""
    yield from making(request.param)


class CyclingEnv(CounterEnv):
    """A counter whose episodes have the lengths of ``lengths``, over and over again."""

    def __init__(self, env_id: int, lengths: tuple[int, ...]) -> None:
        super().__init__(env_id)
        self.lengths = lengths

    def reset(self, **kwargs: Any) -> Any:
        first = super().reset(**kwargs)
        self.length = self.lengths[self.episode % len(self.lengths)]
        return first


def launched(n: int, **cfg: Any) -> FakeManager:
    manager = FakeManager([lambda: None] * n, {**FakeManager.config, **cfg})
    manager.launch()
    return manager


def policy(env_ids: Any, obs: Any) -> Any:
    return np.asarray(obs)[:, 2] * 10 + np.asarray(env_ids)


def collect(quotas: list[int], **cfg: Any) -> Collection:
    collection = Collection(quotas)
    manager = launched(len(quotas), episode_num=max(quotas), **cfg)
    collection.run(manager, policy, lambda _: None)
    return collection


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize("n_episode", [3, 7, 10])
def test_every_env_plays_its_quota(n_episode: int, at_once: int) -> None:
    quotas = split(n_episode, 3)
    collection = collect(quotas, at_once=at_once)
    episodes = collection.recorder.episodes
    assert [sum(e.env_id == i for e in episodes) for i in range(3)] == quotas
    assert all(e.length == e.env_id + 2 == e.total for e in episodes)


def test_episodes_are_whole_and_in_order_however_envs_interleave() -> None:
    collection = collect([3, 3, 2], at_once=1)
    for episode in collection.recorder.episodes:
        steps = episode.steps
        assert steps is not None
        expected = [[episode.env_id, episode.number, t] for t in range(episode.length)]
        np.testing.assert_array_equal(steps.obs, expected)
        np.testing.assert_array_equal(steps.action, [10 * t + episode.env_id for t in range(episode.length)])
        np.testing.assert_array_equal(steps.final_obs, [[episode.env_id, episode.number, episode.length]])


def test_a_ready_env_beyond_its_quota_is_left_alone() -> None:
    # Env 0 has played all its episodes and is ready again, while env 1 takes long for its reset.
    collection = collect([1, 2], at_once=2, reset_steps=1)
    assert [(e.env_id, e.number) for e in collection.recorder.episodes] == [(0, 0), (1, 0), (1, 1)]
    assert collection.recorder.unfinished == 0


def test_envs_that_do_not_restart_by_themselves_are_reset() -> None:
    collection = Collection([2, 2])
    manager = launched(2, auto_reset=False)
    collection.run(manager, policy, lambda _: None)
    assert sorted(i for reset in manager.resets for i in reset) == [0, 1]
    assert len(collection.recorder.episodes) == 4


def test_a_failed_env_ends_its_episode_and_is_reset() -> None:
    collection = Collection([2, 2])
    manager = launched(2, abnormal_at=2)
    collection.run(manager, policy, lambda _: None)
    assert manager.resets == [{1: None}]
    abnormal = [e for e in collection.recorder.episodes if e.abnormal]
    assert [(e.env_id, e.length, e.terminated, e.truncated) for e in abnormal] == [(1, 1, False, True)]


def test_it_ends_when_the_manager_is_done_before_the_quotas_are_full() -> None:
    collection = Collection([5, 5])
    collection.run(launched(2, episode_num=2), policy, lambda _: None)
    assert len(collection.recorder.episodes) == 4


def test_what_came_in_is_there_after_an_interrupt() -> None:
    collection = Collection([50, 50])
    manager = launched(2)

    def interrupt(_: Collection) -> None:
        if manager.steps >= 21:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collection.run(manager, policy, interrupt)
    recorder = collection.recorder
    assert recorder.steps == manager.steps
    assert sum(e.length for e in recorder.episodes) + recorder.unfinished == recorder.steps


def test_samples_are_counts_of_steps_over_time() -> None:
    ticks = iter(np.arange(10_000) * 0.01)
    collection = Collection([5, 5], clock=lambda: float(next(ticks)))
    collection.run(launched(2), policy, lambda _: None)
    times, steps = zip(*collection.samples, strict=True)
    assert list(times) == sorted(times)
    assert all(b - a >= 0.02 for a, b in itertools.pairwise(times))
    assert list(steps) == sorted(steps)


def test_a_policy_that_raises_is_named_with_its_own_line() -> None:
    def broken(env_ids: Any, obs: Any) -> Any:
        return 1 / 0

    with pytest.raises(PolicyError, match="ZeroDivisionError") as caught:
        Collection([1]).run(launched(1), broken, lambda _: None)
    assert "return 1 / 0" in str(caught.value)
    assert "_answers" not in str(caught.value)


def test_a_policy_must_give_an_action_per_env() -> None:
    with pytest.raises(PolicyError, match="gave 1 actions for 2 envs"):
        Collection([1, 1]).run(launched(2), lambda ids, obs: [0], lambda _: None)


def test_split_gives_all_envs_alike() -> None:
    assert split(10, 4) == [3, 3, 2, 2]
    assert split(8, 4) == [2, 2, 2, 2]


@pytest.mark.case("D08")
@pytest.mark.parametrize(
    "lengths",
    [
        [(1,), (50,), (1,), (50,)],
        [(1,), (1, 50), (50,), (50, 1)],
        [(1, 50)],
    ],
    ids=str,
)
@pytest.mark.parametrize("limited", [True, False])
@in_processes
def test_short_episodes_are_not_favoured(make: Maker, lengths: Any, limited: bool) -> None:
    """20 episodes: each env gives its share of them, its first ones, whole and in order.

    Whoever took the first 20 that finish would have hardly one of the long ones among them. The command
    limits the manager to the share too; without that the loop has to see to it alone.
    """
    quotas = split(20, len(lengths))
    cfg: dict[str, Any] = {"episode_num": max(quotas)} if limited else {}
    if make.is_async:
        cfg.update(wait_num=1, step_wait_timeout=0.0)  # each comes as soon as it is there
    manager = make([partial(CyclingEnv, i, of) for i, of in enumerate(lengths)], **cfg)
    manager.launch()
    collection = Collection(quotas)
    collection.run(manager, policy, lambda _: None)

    episodes = collection.recorder.episodes
    wanted = {i: list(itertools.islice(itertools.cycle(of), quotas[i])) for i, of in enumerate(lengths)}
    by_env = {i: [e for e in episodes if e.env_id == i] for i in wanted}
    assert {i: [e.length for e in own] for i, own in by_env.items()} == wanted
    for i, own in by_env.items():
        assert [e.number for e in own] == list(range(quotas[i]))
        for e in own:
            assert e.steps is not None and e.terminated and not e.abnormal
            np.testing.assert_array_equal(e.steps.obs, [[i, e.number, t] for t in range(e.length)])
            np.testing.assert_array_equal(e.steps.final_obs, [[i, e.number, e.length]])
            np.testing.assert_array_equal(e.steps.reward, 100 * i + 1 + np.arange(e.length))
    assert collection.recorder.unfinished == 0
    assert collection.recorder.steps == sum(map(sum, wanted.values()))
