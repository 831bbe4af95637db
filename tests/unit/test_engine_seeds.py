"""Which seed each env gets, and when."""

import contextlib
from typing import Any

import numpy as np
import pytest

from envmgr.engine.seeds import DYNAMIC, PLAIN, STATIC, SeedBook
from envmgr.errors import ConfigError
from tests.helpers.ids import stable_repr

LIMIT = 2**32 - 1


def taken(book: SeedBook, env_id: int) -> int:
    got = book.take(env_id)
    assert got is not None
    return got[0]


def book(n: int = 3, seed: Any = 10, dynamic: bool | None = None, mode: str = "offset") -> SeedBook:
    made = SeedBook(n, mode)
    made.set(seed, dynamic)
    return made


# -- what is asked ------------------------------------------------------------------------------------


def test_offset_counts_on_from_the_base() -> None:
    assert SeedBook(4).set(7) == {0: 7, 1: 8, 2: 9, 3: 10}


def test_offset_stays_a_seed_at_the_limit() -> None:
    assert SeedBook(3).set(LIMIT - 1) == {0: LIMIT - 1, 1: LIMIT, 2: 0}


@pytest.mark.case("R01")
def test_spawn_gives_neighbouring_base_seeds_nothing_in_common() -> None:
    n = 512
    seeds = [set(SeedBook(n, "spawn").set(base).values()) for base in (0, 1, 2)]
    assert [len(s) for s in seeds] == [n, n, n]
    assert not seeds[0] & seeds[1]
    assert not seeds[1] & seeds[2]
    assert all(0 <= s <= LIMIT for s in seeds[0])


def test_spawn_is_the_same_every_time_and_does_not_depend_on_how_many_there_are() -> None:
    few, many = SeedBook(2, "spawn").set(5), SeedBook(9, "spawn").set(5)
    assert few == {i: many[i] for i in few}
    assert SeedBook(9, "spawn").set(5) == many


@pytest.mark.case("R04")
@pytest.mark.parametrize("mode", ["offset", "spawn"])
@pytest.mark.parametrize("seeds", [[5, 3, 9], (5, 3, 9), np.array([5, 3, 9])], ids=["list", "tuple", "array"])
def test_a_list_is_taken_as_it_is(seeds: Any, mode: str) -> None:
    made = SeedBook(3, mode)
    assert made.set(seeds) == {0: 5, 1: 3, 2: 9}
    assert [made.take(i) for i in range(3)] == [(5, PLAIN), (3, PLAIN), (9, PLAIN)]


def test_a_list_may_leave_some_unseeded() -> None:
    made = book(seed=[1, None, 2])
    assert [made.take(i) for i in range(3)] == [(1, PLAIN), None, (2, PLAIN)]


@pytest.mark.case("R04")
def test_a_dict_leaves_the_others_alone() -> None:
    made = book(3, 10)
    assert made.set({1: 99}) == {1: 99}
    assert [taken(made, i) for i in range(3)] == [10, 99, 12]
    made.set({np.int64(2): np.uint8(4)})
    assert [made.take(i) for i in range(3)] == [None, None, (4, PLAIN)]
    assert [made.base(i) for i in range(3)] == [10, 99, 4]


@pytest.mark.case("R03")
def test_none_is_no_seed() -> None:
    made = book(3, 10)
    assert made.set(None) == {0: None, 1: None, 2: None}
    assert [made.take(i) for i in range(3)] == [None] * 3
    assert made.base(0) is None
    made.renewed(0)
    assert made.take(0) is None


def test_nothing_set_is_no_seed() -> None:
    made = SeedBook(2)
    assert made.take(0) is None
    assert made.base(1) is None
    made.give_back(0)
    assert made.take(0) is None


def test_numpys_whole_numbers_are_whole_numbers() -> None:
    assert SeedBook(2).set(np.int64(3)) == {0: 3, 1: 4}
    assert all(type(s) is int for s in SeedBook(2).set(np.uint32(3)).values())


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [1.0, True, "7", b"7", -1, 2**32, np.float64(1), np.bool_(True), object(), {1, 2}],
    ids=stable_repr,
)
def test_wrong_seeds(wrong: Any) -> None:
    for given in (wrong, [1, wrong, 2], {1: wrong}):
        with pytest.raises(ConfigError, match="a seed is"):
            SeedBook(3).set(given)


@pytest.mark.case("O01")
@pytest.mark.parametrize("seeds", [[], [1, 2], [1, 2, 3, 4], np.zeros(4, int)], ids=str)
def test_too_many_or_too_few(seeds: Any) -> None:
    with pytest.raises(ConfigError, match=f"list of {len(seeds)}; this manager has 3 envs"):
        SeedBook(3).set(seeds)


@pytest.mark.parametrize("wrong", [-1, 3, True, "1", 1.0, None], ids=stable_repr)
def test_a_dict_that_names_no_env(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="the envs 0 to 2"):
        SeedBook(3).set({wrong: 1})


def test_an_array_without_dimensions_is_a_number_or_refused() -> None:
    made = SeedBook(2)
    with contextlib.suppress(ConfigError):
        assert made.set(np.array(5)) == {0: 5, 1: 6}


def test_an_array_of_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="a seed is"):
        SeedBook(3).set(np.zeros((3, 2), int))


def test_what_is_refused_changes_nothing() -> None:
    made = book(3, 10)
    for wrong in ([1, 2, -3], {0: 1, 7: 2}, {0: 1, 1: 2.5}):
        with pytest.raises(ConfigError):
            made.set(wrong)
    assert [taken(made, i) for i in range(3)] == [10, 11, 12]


# -- over the episodes --------------------------------------------------------------------------------


def test_a_seed_is_used_once() -> None:
    made = book(2, 10)
    assert made.take(0) == (10, PLAIN)
    assert made.take(0) is None
    assert made.take(1) == (11, PLAIN)
    made.set(10)
    assert made.take(0) == (10, PLAIN)


def test_static_by_word_is_used_once_too() -> None:
    made = book(2, 10, dynamic=False)
    assert made.take(0) == (10, PLAIN)
    assert made.take(0) is None


def test_dynamic_gives_a_fresh_one_each_episode() -> None:
    made, other = book(3, 10, dynamic=True), book(3, 10, dynamic=True)
    seeds = [[taken(made, i) for _ in range(50)] for i in range(3)]
    assert [row[0] for row in seeds] == [10, 11, 12]
    assert len({s for row in seeds for s in row}) == 150
    assert all(0 <= s <= LIMIT for row in seeds for s in row)
    # Whoever is asked first does not matter.
    assert [[taken(other, i) for _ in range(50)] for i in (2, 0, 1)] == [seeds[2], seeds[0], seeds[1]]


def test_dynamic_starts_again_with_each_seed() -> None:
    made = book(2, 10, dynamic=True)
    first = [taken(made, 0) for _ in range(3)]
    made.set(10, True)
    assert [taken(made, 0) for _ in range(3)] == first


@pytest.mark.parametrize(("dynamic", "how"), [(None, PLAIN), (False, STATIC), (True, DYNAMIC)])
def test_an_env_that_varies_its_seed_itself_is_told_once(dynamic: bool | None, how: int) -> None:
    made = SeedBook(2)
    made.passes_dynamic(0)
    made.set(10, dynamic)
    assert made.take(0) == (10, how)
    assert made.take(0) is None


# -- when things go wrong -----------------------------------------------------------------------------


@pytest.mark.case("R05")
@pytest.mark.parametrize("dynamic", [None, False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_failed_reset_gives_its_seed_back(dynamic: bool | None, own: bool) -> None:
    made, calm = SeedBook(2), SeedBook(2)
    for b in (made, calm):
        if own:
            b.passes_dynamic(1)
        b.set(10, dynamic)
    for _ in range(4):
        for _ in range(3):
            made.take(1)
            made.give_back(1)
            made.give_back(1)  # twice is once
        assert made.take(1) == calm.take(1)


def test_giving_back_where_none_was_taken_does_nothing() -> None:
    made = book(1, 10)
    made.take(0)
    made.take(0)  # the second reset, without a seed: this one fails
    made.give_back(0)
    assert made.take(0) is None


def test_a_seed_that_was_set_meanwhile_is_not_given_back_over() -> None:
    made = book(1, 10)
    made.take(0)  # a reset is under way
    made.set(77)
    made.give_back(0)  # it fails
    assert made.take(0) == (77, PLAIN)


@pytest.mark.case("R05")
def test_renewals_get_children_that_nobody_else_has() -> None:
    n, renewals = 8, 20
    made = book(n, 10)
    seen = [taken(made, i) for i in range(n)]
    for _ in range(renewals):
        for i in range(n):
            made.renewed(i)
            seen.append(taken(made, i))
            assert made.take(i) is None
    assert len(set(seen)) == n * (renewals + 1)
    assert all(0 <= s <= LIMIT for s in seen)


def test_equal_seeds_have_different_children() -> None:
    made = book(3, [5, 5, 5])
    for i in range(3):
        made.renewed(i)
    assert len({taken(made, i) for i in range(3)}) == 3


def test_children_come_from_the_seed_the_env_and_the_count_alone() -> None:
    one, other = book(2, 10), book(2, [3, 11])
    one.take(1)
    one.take(1)
    for b in (one, other):
        b.renewed(1)
        b.renewed(1)
    assert one.take(1) == other.take(1)


def test_a_new_seed_begins_the_renewals_anew() -> None:
    made = book(1, 10)
    made.renewed(0)
    first = made.take(0)
    made.set(10)
    assert made.take(0) == (10, PLAIN)
    made.renewed(0)
    assert made.take(0) == first


def test_dynamic_goes_on_after_a_renewal() -> None:
    made = book(1, 10, dynamic=True)
    taken(made, 0)
    made.renewed(0)
    after = [taken(made, 0) for _ in range(20)]
    assert len({10, *after}) == 21


def test_a_renewed_dynamic_env_plays_no_episode_twice() -> None:
    made = book(1, 10, dynamic=True)
    before = [taken(made, 0) for _ in range(5)]
    made.renewed(0)
    after = [taken(made, 0) for _ in range(5)]
    assert not set(before) & set(after)
