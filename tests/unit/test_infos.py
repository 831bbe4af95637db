"""The array face's infos in two other views: a list of dicts, arrays with masks."""

import enum
import types
from collections import OrderedDict, UserDict

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envmgr import info_arrays, info_list

pytestmark = pytest.mark.case("A06")

few = settings(max_examples=100, deadline=None)


class Colour(enum.IntEnum):
    RED = 3


def column(*values, rows=None):
    """The array and the mask of a key under which env i said ``values[i]``; ``...`` is nothing said."""
    infos = {i: {"x": value} for i, value in enumerate(values) if value is not ...}
    out = info_arrays(infos, range(len(values)) if rows is None else rows)
    assert list(out) == ["x", "_x"]
    assert out["_x"].dtype == np.bool_
    assert out["_x"].tolist() == [value is not ... for value in values]
    return out["x"]


def is_(array, dtype, values):
    assert array.dtype == dtype
    assert array.tolist() == values
    return True


class TestList:
    def test_a_key_in_one_envs_info_only(self):
        said = {"lives": 2}
        rows = info_list({1: said}, np.arange(3))
        assert rows == [{}, {"lives": 2}, {}]
        assert rows[1] is said
        rows[0]["mine"] = 1
        assert rows[2] == {}, "rows without an info share one dict"

    def test_rows_are_in_the_order_of_env_id_and_may_be_a_part(self):
        infos = {0: {"a": 0}, 2: {"a": 2}, 3: {"a": 3}}
        assert info_list(infos, [3, 1, 0, 2]) == [{"a": 3}, {}, {"a": 0}, {"a": 2}]
        assert info_list(infos, np.array([2, 1], np.int32)) == [{"a": 2}, {}]
        assert info_list(infos, []) == []
        assert info_list({}, (0, 1)) == [{}, {}]

    def test_an_info_that_is_no_dict_goes_under_its_own_name(self):
        infos = {0: "text", 1: None, 2: UserDict(a=1), 3: types.MappingProxyType({"b": 2}), 4: 0}
        assert info_list(infos, range(5)) == [{"info": "text"}, {}, {"a": 1}, {"b": 2}, {"info": 0}]
        assert all(type(row) is dict for row in info_list(infos, range(5)))


@pytest.mark.parametrize("view", [info_list, info_arrays])
class TestRefused:
    @pytest.mark.parametrize(
        ("env_id", "text"),
        [
            ([0, 1, 0], "env 0 more than once"),
            (np.array([2, 2]), "env 2 more than once"),
            ([0, -1], "env -1"),
            ([0.0, 1.0], "whole numbers"),
            ([True, False], "whole numbers"),  # a mask is no list of ids
            (["0"], "whole numbers"),
            ([[0, 1]], "whole numbers"),
            (0, "whole numbers"),
            (None, "whole numbers"),
        ],
        ids=str,
    )
    def test_env_id(self, view, env_id, text):
        with pytest.raises(ValueError, match=text):
            view({0: {"a": 1}}, env_id)

    @pytest.mark.parametrize("infos", [[{}, {}], None, "text"], ids=str)
    def test_infos_that_are_no_dict(self, view, infos):
        with pytest.raises(TypeError, match="dict"):
            view(infos, [0, 1])


class TestArrays:
    def test_a_key_in_one_envs_info_only(self):
        out = info_arrays({1: {"lives": 2}}, np.arange(3))
        assert list(out) == ["lives", "_lives"]
        assert is_(out["lives"], np.int64, [0, 2, 0])
        assert is_(out["_lives"], np.bool_, [False, True, False])

    def test_nothing_said(self):
        assert info_arrays({}, [0, 1]) == {}
        assert info_arrays({0: {}, 1: None}, [0, 1]) == {}
        assert info_arrays({0: {"a": 1}}, []) == {}
        assert info_arrays({0: {"a": 1}}, [1]) == {}

    def test_rows_are_in_the_order_of_env_id_and_may_be_a_part(self):
        infos = {0: {"a": 10}, 2: {"a": 12, "b": "x"}, 3: {"c": 1.5}}
        out = info_arrays(infos, np.array([3, 2, 1, 0]))
        assert is_(out["a"], np.int64, [0, 12, 0, 10]) and is_(out["_a"], bool, [False, True, False, True])
        assert is_(out["b"], object, [None, "x", None, None])
        assert is_(out["c"], np.float64, [1.5, 0.0, 0.0, 0.0])
        out = info_arrays(infos, [2, 0])
        assert list(out) == ["a", "_a", "b", "_b"], "env 3 has no row"
        assert out["a"].tolist() == [12, 10] and out["_b"].tolist() == [True, False]

    @pytest.mark.parametrize(
        ("value", "dtype", "masked"),
        [
            (3, np.int64, 0),
            (-1.5, np.float64, 0.0),
            (float("inf"), np.float64, 0.0),
            (True, np.bool_, False),
            (1 + 2j, np.complex128, 0),
            (2**63, np.uint64, 0),
            (np.int8(3), np.int8, 0),
            (np.float32(0.1), np.float32, 0.0),
            (np.float64(0.1), np.float64, 0.0),
            (np.bool_(True), np.bool_, False),
            (np.array(3, np.int16), np.int16, 0),
            ("text", object, None),
            (None, object, None),
            (b"bytes", object, None),
            (2**64, object, None),
            ([1, 2], object, None),
            ((1, 2), object, None),
            (Colour.RED, object, None),
            (np.str_("text"), object, None),
            (np.datetime64("2020-01-01"), object, None),
            (np.timedelta64(3), object, None),
        ],
        ids=repr,
    )
    def test_dtypes_of_single_values(self, value, dtype, masked):
        array = column(..., value, ...)
        assert array.dtype == dtype and array.shape == (3,)
        assert array[0] == array[2] == masked or (masked is None and array[0] is array[2] is None)
        assert array[1] is value if dtype is object else array[1] == value

    @pytest.mark.parametrize("dtype", ["?", "u1", "i4", "f2", "f8", "c8", ">f4"])
    @pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0,), (2, 0)])
    def test_arrays_of_one_shape(self, dtype, shape):
        values = [np.ones(shape, dtype), 2 * np.ones(shape, dtype)]
        array = column(values[0], ..., values[1].astype(dtype))
        assert array.dtype == np.dtype(dtype).newbyteorder("=") and array.shape == (3, *shape)
        assert np.array_equal(array[0], values[0]) and np.array_equal(array[2], values[1].astype(dtype))
        assert not array[1].any()

    def test_nan_and_negative_zero_stay(self):
        array = column(float("nan"), -0.0, 1)
        assert np.isnan(array[0]) and np.signbit(array[1]) and array[2] == 1

    @pytest.mark.parametrize(
        ("values", "dtype"),
        [
            ((1, 2.5), np.float64),
            ((2.5, 1), np.float64),
            ((np.int8(1), 300), np.int64),
            ((np.uint8(255), np.int8(-1)), np.int16),
            ((np.float32(0.1), 0.1), np.float64),
            ((np.float16(0.5), np.int16(2049)), np.float32),
            ((1, 2j), np.complex128),
            ((2**53, 0.5), np.float64),
            ((-(2**53), 0.5), np.float64),
            ((True, np.bool_(False)), np.bool_),
            ((3, np.array(4)), np.int64),
        ],
        ids=repr,
    )
    def test_numbers_of_mixed_dtypes_are_promoted_where_each_stays_itself(self, values, dtype):
        array = column(*values, ...)
        assert array.dtype == dtype
        assert array.tolist() == [*(np.asarray(value).tolist() for value in values), 0]

    @pytest.mark.parametrize(
        "values",
        [
            (2**53 + 1, 0.5),  # 2.0**53 as a float
            (0.5, -(2**53) - 1),
            (np.int64(2**53 + 1), np.float32(1)),
            (2**63, -1),  # numpy has no dtype of whole numbers for both
            (2**64, 1),
            (True, 1),  # True would be told as 1
            (0.0, False),
            (1, "1"),
            (1, None),
            (None, 1.5),
            (1, [1]),
            ({"a": 1}, 1),
            (1, {"a": 1}),
            (Colour.RED, 3),
            (np.zeros(2), np.zeros(3)),
            (np.zeros(2), 0.0),
            (np.zeros((2, 1)), np.zeros((1, 2))),
            (np.zeros(2), np.zeros(2, bool)),
            (np.zeros(2), np.array(["a", "b"])),
            (np.array(1), "x"),
            (np.array(None), np.array("x")),
            (np.array([1, None]), np.array([2, None])),
            (np.ma.masked_array([1, 2], [True, False]), np.zeros(2)),
            (np.zeros(2, "M8[s]"), np.zeros(2, "M8[s]")),
        ],
        ids=repr,
    )
    def test_what_no_array_of_numbers_can_hold_stays_as_it_is(self, values):
        array = column(values[0], ..., values[1])
        assert array.dtype == object and array.shape == (3,)
        assert array[0] is values[0] and array[1] is None and array[2] is values[1]

    def test_none_that_was_said_is_told_from_nothing_said(self):
        out = info_arrays({0: {"x": None}}, [0, 1])
        assert out["x"].tolist() == [None, None]
        assert out["_x"].tolist() == [True, False]

    def test_lists_of_one_length_are_not_looked_into(self):
        assert is_(column([1, 2], ..., [3, 4]), object, [[1, 2], None, [3, 4]])

    def test_nested_dicts(self):
        infos = {0: {"d": {"a": 1}}, 1: {"e": 0}, 2: {"d": OrderedDict(a=2, b={"c": "x"})}}
        out = info_arrays(infos, [0, 1, 2])
        assert list(out) == ["d", "_d", "e", "_e"]
        assert out["_d"].tolist() == [True, False, True]
        assert list(out["d"]) == ["a", "_a", "b", "_b"]
        assert is_(out["d"]["a"], np.int64, [1, 0, 2]) and out["d"]["_a"].tolist() == [True, False, True]
        assert is_(out["d"]["b"]["c"], object, [None, None, "x"])
        assert out["d"]["_b"].tolist() == out["d"]["b"]["_c"].tolist() == [False, False, True]

    def test_an_empty_dict_was_said(self):
        out = info_arrays({1: {"d": {}}}, [0, 1])
        assert out["d"] == {} and out["_d"].tolist() == [False, True]

    def test_a_space_is_no_dict_to_be_taken_apart(self):
        space = spaces.Dict(a=spaces.Discrete(2))
        assert column(..., space)[1] is space

    def test_keys_that_are_no_strings(self):
        out = info_arrays({0: {0: 5, (1, 2): "x"}, 1: {0: 6}}, [0, 1])
        assert list(out) == [0, "_0", (1, 2), "_(1, 2)"]
        assert is_(out[0], np.int64, [5, 6]) and out["_(1, 2)"].tolist() == [True, False]

    def test_an_info_that_is_no_dict(self):
        out = info_arrays({0: "text", 1: None, 2: {"info": 3}}, [0, 1, 2])
        assert list(out) == ["info", "_info"]
        assert is_(out["info"], object, ["text", None, 3])
        assert out["_info"].tolist() == [True, False, True]

    def test_a_key_that_begins_with_an_underscore(self):
        out = info_arrays({1: {"_x": 4}}, [0, 1])
        assert list(out) == ["_x", "__x"]
        assert is_(out["_x"], np.int64, [0, 4]) and is_(out["__x"], np.bool_, [False, True])

    @pytest.mark.parametrize(
        ("infos", "text"),
        [
            ({4: {"x": 1, "_x": 2}}, r"'x' \(env 4\).*'_x' \(env 4\).*mask of 'x'"),
            ({4: {"_x": 2, "x": 1}}, r"'x' \(env 4\).*'_x' \(env 4\).*mask of 'x'"),
            ({4: {"x": 1}, 2: {"_x": True}}, r"'x' \(env 4\).*'_x' \(env 2\)"),
            ({4: {"_x": 1}, 2: {"__x": True}}, r"'_x' \(env 4\).*'__x' \(env 2\)"),
            ({4: {3: 1, "3": 2}}, r"'3' \(env 4\).*3 \(env 4\).*both.*'_3'"),
            ({4: {3: 1}, 2: {"_3": 2}}, r"3 \(env 4\).*'_3' \(env 2\)"),
            ({4: {"d": {"e": {"x": 1}}}, 2: {"d": {"e": {"_x": 1}}}}, r"info\['d'\]\['e'\].*'x'.*'_x'"),
        ],
        ids=str,
    )
    def test_a_mask_that_would_fall_on_a_key_is_an_error(self, infos, text):
        with pytest.raises(ValueError, match=text) as caught:
            info_arrays(infos, [4, 2])
        assert "info_list" in str(caught.value)
        assert info_list(infos, [4, 2]) == [infos[4], infos.get(2, {})]

    def test_a_clash_with_an_env_that_has_no_row_is_none(self):
        assert list(info_arrays({0: {"x": 1}, 1: {"_x": 2}}, [0])) == ["x", "_x"]

    def test_arrays_are_the_callers_own(self):
        said = np.ones(2)
        infos = {0: {"x": said, "d": {"y": 1}}, 1: {"d": {"y": 2}}}
        out = info_arrays(infos, [0, 1])
        out["x"][:] = 7
        out["d"]["y"][:] = 7
        assert said.tolist() == [1, 1]
        assert infos[0]["d"] == {"y": 1} and infos[1] == {"d": {"y": 2}}


class SayingEnv(gymnasium.Env):
    """Says a given info in each step."""

    observation_space = action_space = spaces.Discrete(2)

    def __init__(self, info):
        self.info = info

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, self.info


def assert_same_tree(a, b):
    assert set(a) == set(b)
    for key in a:
        if isinstance(a[key], dict):
            assert_same_tree(a[key], b[key])
        else:
            assert a[key].dtype == b[key].dtype and a[key].shape == b[key].shape, key
            assert a[key].tolist() == b[key].tolist(), key


def test_where_types_agree_it_says_what_gymnasiums_own_vector_env_says():
    infos = {
        1: {"n": 3, "f": 1.5, "b": True, "s": "x", "none": None, "a": np.ones(2, np.float32), "l": [1, 2]},
        2: {"n": 4, "d": {"q": np.float32(2), "e": {"z": 1}}, "g": np.int32(4)},
        3: {"d": {"r": False}, "f": -2.0},
    }
    vector = gymnasium.vector.SyncVectorEnv([lambda i=i: SayingEnv(infos.get(i, {})) for i in range(4)])
    vector.reset()
    theirs = vector.step([0, 0, 0, 0])[4]
    vector.close()
    assert_same_tree(info_arrays(infos, range(4)), theirs)


# ---------------------------------------------------------------- both views say the same

NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63]),
    st.floats(allow_nan=False),
    st.sampled_from([np.int8(-3), np.uint64(2**64 - 1), np.float32(0.1), np.float16(2), np.bool_(True)]),
)
ARRAYS = st.builds(
    lambda shape, dtype: np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype),
    st.sampled_from([(), (1,), (2,), (2, 2), (0,)]),
    st.sampled_from(["?", "i1", "i8", "f4", "f8", "U1", object]),
)
LEAVES = NUMBERS | ARRAYS | st.sampled_from([None, "text", "", (), (1, 2), Colour.RED])
NAMES = st.sampled_from(["a", "b", "c", 0, 1, (0, 1)])
ANY_NAMES = st.sampled_from(["a", "_a", "__a", "0", "_0", 0, ""])


def infos_of(names):
    values = st.recursive(LEAVES, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=6)
    return st.dictionaries(st.integers(0, 5), st.dictionaries(names, values, max_size=4), max_size=6)


def read_back(columns, k):
    """The info of row k, from the masked view alone."""
    entries = list(columns.items())
    info = {}
    for (key, column), (name, mask) in zip(entries[::2], entries[1::2], strict=True):
        assert name == f"_{key}" and mask.dtype == np.bool_
        nothing = not isinstance(column, dict) and not mask[k]
        if nothing and column.dtype == object:
            assert column[k] is None
        elif nothing:
            assert not np.any(column[k])
        if mask[k]:
            info[key] = read_back(column, k) if isinstance(column, dict) else column[k]
        elif isinstance(column, dict):
            assert read_back(column, k) == {}
    return info


def assert_same_value(got, said):
    """The same object, or the same number: a bool for a bool, an int to the last digit."""
    if isinstance(said, dict) and isinstance(got, dict) and got is not said:
        assert list(got.keys() ^ said.keys()) == []
        for key in said:
            assert_same_value(got[key], said[key])
    elif got is not said:
        got, said = np.asarray(got), np.asarray(said)
        assert got.shape == said.shape and got.dtype != object and said.dtype != object
        assert (got.dtype.kind == "b") == (said.dtype.kind == "b")
        assert got.ravel().tolist() == said.ravel().tolist()  # Python compares ints and floats exactly


@few
@given(infos_of(NAMES), st.permutations(range(6)), st.integers(0, 6))
def test_list_and_arrays_say_the_same(infos, order, count):
    env_id = order[:count]
    columns = info_arrays(infos, env_id)
    for k, (i, said) in enumerate(zip(env_id, info_list(infos, env_id), strict=True)):
        assert said is infos[i] if i in infos else said == {}
        assert_same_value(read_back(columns, k), said)


def clash(dicts):
    """Whether two names of the masked view of these dicts would be one, at any depth."""
    keys = {key for one in dicts for key in one}
    names = [*keys, *(f"_{key}" for key in keys)]
    if len(set(names)) < len(names):
        return True
    columns = [[one[key] for one in dicts if key in one] for key in keys]
    return any(clash(values) for values in columns if all(isinstance(value, dict) for value in values))


@few
@given(infos_of(ANY_NAMES))
def test_any_names_are_told_apart_or_refused(infos):
    rows = info_list(infos, range(6))
    if clash(rows):
        with pytest.raises(ValueError, match="mask"):
            info_arrays(infos, range(6))
        return
    columns = info_arrays(infos, range(6))
    for k, said in enumerate(rows):
        assert_same_value(read_back(columns, k), said)
