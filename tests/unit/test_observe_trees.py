"""Stacking of observations and actions."""

import numpy as np

from envmgr.observe.trees import concatenate, named_leaves, row, stack


def test_arrays_numbers_and_text_become_arrays() -> None:
    assert stack([np.zeros(3, np.float32)] * 2).shape == (2, 3)
    assert stack([np.zeros(3, np.float32)] * 2).dtype == np.float32
    assert stack([1, 2]).tolist() == [1, 2]
    assert stack(["a", "bc"]).tolist() == ["a", "bc"]


def test_dicts_and_tuples_are_stacked_leaf_by_leaf() -> None:
    value = {"img": np.ones((2, 2)), "pair": (1, np.zeros(3))}
    batch = stack([value, value, value])
    assert batch["img"].shape == (3, 2, 2)
    assert batch["pair"][0].tolist() == [1, 1, 1]
    one = row(batch, 1)
    assert one["pair"][0] == 1
    np.testing.assert_array_equal(one["img"], value["img"])


def test_what_makes_no_array_stays_whole() -> None:
    ragged = stack([np.zeros(2), np.zeros(3)])
    assert ragged.dtype == object
    assert ragged[1].shape == (3,)
    things = stack([[None, "x"], [None]])
    assert things.tolist() == [[None, "x"], [None]]
    assert things.shape == (2,)


def test_concatenation_keeps_the_structure() -> None:
    whole = concatenate([{"a": np.zeros((2, 3))}, {"a": np.ones((1, 3))}])
    assert whole["a"].shape == (3, 3)
    ragged = concatenate([np.zeros((2, 3)), np.zeros((1, 4))])
    assert ragged.dtype == object
    assert len(ragged) == 3


def test_leaves_are_named_by_their_path() -> None:
    tree = {"img": 1, "pair": (2, {"x": 3})}
    assert dict(named_leaves("obs", tree)) == {"obs/img": 1, "obs/pair/0": 2, "obs/pair/1/x": 3}
    assert dict(named_leaves("obs", 5)) == {"obs": 5}
