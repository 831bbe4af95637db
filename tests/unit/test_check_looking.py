"""The parts that look at one thing each: observations, reuse, generators, trajectories, the black box."""

import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from envmgr.cli.checking.blackbox import BlackBox, is_ours, is_users
from envmgr.cli.checking.generators import GlobalGenerators
from envmgr.cli.checking.observations import ObservationCheck, ReuseCheck, parts_of_info
from envmgr.cli.checking.trajectories import Moment, parting
from envmgr.cli.checking.troubles import place_in, trouble_of

BOX = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 2), np.uint8)


def kinds(space: Any, *observations: Any) -> list[tuple[str, str]]:
    check = ObservationCheck(space)
    for number, obs in enumerate(observations):
        check.look(obs, f"step {number}")
    return [(misfit.leaf, misfit.kind) for misfit in check.misfits]


@pytest.mark.parametrize(
    ("space", "obs", "kind"),
    [
        (BOX, np.zeros(4, np.float32), "shape"),
        (BOX, None, "shape"),
        (BOX, np.zeros(3), "rounded"),
        (BOX, np.zeros(3, np.int8), "cast"),
        (BOX, np.full(3, 2, np.float32), "bounds"),
        (BOX, np.full(3, np.nan, np.float32), "nan"),
        (IMAGE, np.full((2, 2), 0.5), "lossy"),
        (IMAGE, np.full((2, 2), 300), "lossy"),
        (IMAGE, np.full((2, 2), 30), "cast"),
        (spaces.Discrete(3), 3, "range"),
        (spaces.Discrete(3, start=5), 4, "range"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "range"),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "range"),
        (spaces.Text(3), 7, "foreign"),
        (spaces.Dict(a=BOX), np.zeros(3, np.float32), "structure"),
        (spaces.Dict(a=BOX), {}, "structure"),
        (spaces.Tuple((BOX, BOX)), (np.zeros(3, np.float32),), "structure"),
    ],
)
def test_a_misfit_is_told_by_its_kind(space: Any, obs: Any, kind: str) -> None:
    assert [found for _, found in kinds(space, obs)] == [kind]


def test_samples_of_any_space_fit() -> None:
    space = spaces.Dict(
        a=spaces.Tuple((BOX, IMAGE)),
        b=spaces.Dict(c=spaces.Discrete(3, start=2), d=spaces.MultiDiscrete([2, 3], start=[1, 1])),
        e=spaces.MultiBinary(3),
        f=spaces.Text(5),
        g=spaces.Box(-np.inf, np.inf, (), np.float64),
    )
    space.seed(0)
    assert kinds(space, *[space.sample() for _ in range(20)]) == []
    assert kinds(None, object()) == []


def test_a_misfit_names_its_leaf_and_its_first_time_and_is_counted() -> None:
    check = ObservationCheck(spaces.Dict(a=spaces.Tuple((BOX, IMAGE))))
    good = np.zeros(3, np.float32)
    for at in range(4):
        check.look({"a": (good, np.full((2, 2), at > 1, np.float32) / 2)}, f"step {at}")
    assert [(m.leaf, m.kind, m.at, m.count) for m in check.misfits] == [
        ("['a'][1]", "cast", "step 0", 2),
        ("['a'][1]", "lossy", "step 2", 2),
    ]


def test_memory_that_is_written_to_again_is_seen_even_where_buffers_take_turns() -> None:
    buffers = [np.zeros(2), np.zeros(2)]
    check = ReuseCheck()
    for step in range(3):
        buffers[step % 2][:] = step
        check.look([("['x']", buffers[step % 2])], f"step {step}")
        assert bool(check.reused) == (step == 2)
    assert check.reused == {"['x']": "the array that step 0 returned was written to by step 2"}


def test_infos_are_looked_at_by_their_arrays_and_their_dicts() -> None:
    array, info = np.zeros(2), {"n": 0, "nested": {"m": [np.zeros(1)]}, "nan": float("nan")}
    check = ReuseCheck()
    check.look(parts_of_info(types.MappingProxyType({"pos": array, "own": info})), "step 1")
    check.look(parts_of_info({}), "step 2")
    assert not check.reused
    array += 1
    info["nested"]["m"][0][:] = 1
    info["n"] = 1
    check.look(parts_of_info(np.zeros(2)), "step 3")
    assert check.reused == {
        "info['pos']": "the array that step 1 returned was written to by step 3",
        "info['own']": "the dict that step 1 returned was written to by step 3",
        "info['own']['nested']['m'][0]": "the array that step 1 returned was written to by step 3",
    }


def test_an_info_that_holds_itself_is_looked_at_once() -> None:
    info: dict[str, Any] = {"n": 1}
    info["self"] = info
    assert parts_of_info(info) == [("info", info)]


def test_the_same_array_again_unchanged_is_no_reuse() -> None:
    array = np.full(2, np.nan)
    check = ReuseCheck()
    for step in range(5):
        check.look([("", array), ("text", "a")], f"step {step}")
    assert not check.reused


def test_only_generators_that_a_call_used_are_told() -> None:
    watch = GlobalGenerators()
    watch.mark()
    watch.look("reset")
    assert watch.used == []
    watch.mark()
    random.random()
    watch.look("step")
    np.random.random()  # between two calls: not the env's doing
    watch.mark()
    watch.look("step")
    watch.mark()
    np.random.normal()
    watch.look("reset")
    assert watch.used == [("random", "step"), ("numpy.random", "reset")]


def run(*moments: Any) -> list[Moment]:
    return [Moment.of(lambda obs: [obs], *moment) for moment in moments]


START, STEP, END = (np.zeros(2),), (np.ones(2), 1.0, (False, False)), (np.ones(2), 1.0, (True, False))


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        ((START, STEP), (START, STEP), ""),
        ((START,), ((np.ones(2),),), "the observation differs at the reset"),
        ((START,), ((np.zeros(2, np.float32),),), "the observation differs at the reset"),
        ((START, STEP), (START, (np.zeros(2), 1.0, (False, False))), "the observation differs at step 1"),
        ((START, STEP), (START, (np.ones(2), 2.0, (False, False))), "the reward differs at step 1"),
        ((START, STEP), (START, END), "the end of the episode differs at step 1"),
        (
            (START, END, START),
            (START, END, (np.ones(2),)),
            "the observation differs at the reset after step 1",
        ),
    ],
)
def test_where_two_runs_part(one: Any, other: Any, where: str) -> None:
    assert parting(run(*one), run(*other)) == where


def test_a_moment_keeps_what_was_so_when_it_was() -> None:
    buffer = np.zeros(2)
    before = run((buffer,))
    buffer[:] = 1
    assert parting(before, run((buffer,)))
    unpicklable = run((lambda: None,))
    assert parting(unpicklable, run((lambda: None,))) == ""


def test_the_black_box_keeps_the_call_and_the_users_last_line(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text("import json\ndef work():\n    a = 1\n    json.dumps(a)\n")
    source = compile((tmp_path / "users.py").read_text(), str(tmp_path / "users.py"), "exec")
    names: dict[str, Any] = {}
    exec(source, names)
    box, reader = BlackBox(str(tmp_path / "box")), BlackBox(str(tmp_path / "box"))
    assert (reader.call, reader.place) == (("", 0), "")
    box.entered("step", 17)
    before = sys.gettrace()
    try:
        box.trace()
        names["work"]()
    finally:
        sys.settrace(before)
    assert reader.call == ("step", 17)
    assert reader.place == f"{tmp_path}/users.py:4 in work"
    box.entered("", 0)
    assert reader.call == ("", 0)
    box.close()
    reader.close()


def test_whose_a_file_is() -> None:
    import json

    import envmgr.errors

    assert is_users(__file__)
    assert not any(map(is_users, (json.__file__, np.__file__, envmgr.errors.__file__, "<string>")))
    assert is_ours(envmgr.errors.__file__)
    assert not is_ours(np.__file__)


def test_the_users_line_is_the_innermost_of_their_own() -> None:
    try:
        np.zeros(2).reshape(3)  # the line
    except ValueError as error:
        trouble = trouble_of(error, "step", 3, None)
    assert trouble.place.startswith(f"{__file__}:")
    assert trouble.place.endswith("in test_the_users_line_is_the_innermost_of_their_own")
    assert trouble.text.startswith("ValueError: cannot reshape")


def test_a_stack_of_faulthandler_is_read_from_its_top() -> None:
    stack = 'Current thread 0x1 (most recent call first):\n  File "/a/b.py", line 5 in inner\n'
    stack += '  File "/a/b.py", line 9 in outer\n'
    assert place_in(stack, innermost_first=True) == "/a/b.py:5 in inner"
    assert place_in('  File "/a/b.py", line 9, in outer\n  File "/a/b.py", line 5, in inner\n') == (
        "/a/b.py:5 in inner"
    )
    assert place_in("nothing") == ""
