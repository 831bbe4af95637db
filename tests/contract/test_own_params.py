"""What an env is handed it may change: its params come anew with every reset."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.helpers import envs
from tests.helpers.managers import in_base, in_base_and_start_methods, many, step_until, wait_ready

pytestmark = pytest.mark.case("A01")


class PopsEnv(envs.CounterEnv):
    """Takes its level out of the options that it is given, and shows it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = super().reset(seed=seed)
        level = (options or {}).pop("level", -1)
        (options or {}).setdefault("list", []).append("mine")
        self.level = level
        return obs, {**info, "level": level if isinstance(level, int) else -1}


@in_base_and_start_methods
def test_params_that_an_env_changes_are_whole_at_the_next_reset(make):
    params = {"options": {"level": 7, "list": []}}
    manager = make(many(PopsEnv, 2, length=1))
    manager.launch({0: params, 1: params})
    for _ in range(3):
        wait_ready(manager)
        assert {i: info["level"] for i, info in manager.ready_info.items()} == {0: 7, 1: 7}
        step_until(manager, {0: 0, 1: 0})
    assert params == {"options": {"level": 7, "list": []}}, "they are the caller's own"


@in_base_and_start_methods
def test_what_the_caller_changes_afterwards_changes_nothing(make):
    params = {"options": {"level": 7}}
    manager = make(many(PopsEnv, 1, length=1), renew_every=1)
    manager.launch({0: params})
    params["options"]["level"] = 8
    for _ in range(2):
        wait_ready(manager)
        assert manager.ready_info[0]["level"] == 7
        step_until(manager, {0: 0})


@in_base
def test_what_cannot_be_copied_is_handed_over_as_it_is(make):
    lock = threading.Lock()
    manager = make([lambda: PopsEnv(0)])
    manager.launch({0: {"options": {"level": lock}}})
    assert manager.level[0] is lock
