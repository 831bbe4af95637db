"""When a gather has enough, and how many replies are worth waking up for."""

import itertools

import pytest

from envmgr.engine.gather import enough, sleep_for


def test_nothing_pending_is_always_enough() -> None:
    for arrived, wait_num, over in itertools.product((0, 1, 3), (None, 1, 5), (False, True)):
        assert enough(arrived=arrived, unfinished=0, pending=0, wait_num=wait_num, window_over=over)


def test_all_means_all_whatever_the_window() -> None:
    assert not enough(arrived=7, unfinished=7, pending=1, wait_num=None, window_over=True)


@pytest.mark.case("F10")
def test_wait_num_in_and_window_over() -> None:
    assert enough(arrived=2, unfinished=1, pending=2, wait_num=2, window_over=True)
    assert enough(arrived=3, unfinished=1, pending=1, wait_num=2, window_over=True)


def test_within_the_window_it_goes_on_for_more() -> None:
    assert not enough(arrived=3, unfinished=3, pending=1, wait_num=2, window_over=False)


def test_too_few_are_not_enough_even_when_the_window_is_over() -> None:
    assert not enough(arrived=1, unfinished=1, pending=3, wait_num=2, window_over=True)
    assert not enough(arrived=0, unfinished=0, pending=3, wait_num=1, window_over=True)


@pytest.mark.case("D08")
def test_results_that_all_ended_their_episode_are_not_enough() -> None:
    """Short episodes must not keep the caller busy with envs that it cannot step."""
    assert not enough(arrived=3, unfinished=0, pending=1, wait_num=2, window_over=True)


@pytest.mark.case("F21")
def test_wait_num_beyond_what_is_alive_means_all_that_there_is() -> None:
    assert not enough(arrived=2, unfinished=2, pending=1, wait_num=100, window_over=True)
    assert enough(arrived=3, unfinished=3, pending=0, wait_num=100, window_over=False)


@pytest.mark.parametrize(
    ("arrived", "unfinished", "pending", "wait_num", "expected"),
    [
        (0, 0, 4, None, 4),  # all of them
        (1, 1, 3, None, 3),
        (0, 0, 4, 2, 2),  # as many as are missing
        (1, 0, 3, 2, 1),
        (0, 0, 1, 2, 1),  # never more than can come
        (2, 0, 3, 2, 1),  # any may be the one that can be stepped again
        (2, 1, 3, 2, 3),  # there is enough: only the whole rest is better than the end of the window
    ],
)
def test_how_many_are_worth_waking_up_for(arrived, unfinished, pending, wait_num, expected) -> None:
    assert sleep_for(arrived=arrived, unfinished=unfinished, pending=pending, wait_num=wait_num) == expected


def test_a_sleeper_is_never_told_to_wait_for_more_than_can_come_or_for_nothing() -> None:
    for arrived, pending, wait_num in itertools.product(range(5), range(1, 5), (None, 1, 2, 3, 9)):
        for unfinished in range(arrived + 1):
            need = sleep_for(arrived=arrived, unfinished=unfinished, pending=pending, wait_num=wait_num)
            assert 1 <= need <= pending


def test_whoever_slept_as_long_as_told_has_enough_when_the_window_is_over() -> None:
    """After ``sleep_for`` more replies, of which one goes on, the gather ends: nobody sleeps for ever."""
    for arrived, pending, wait_num in itertools.product(range(5), range(1, 5), (None, 1, 2, 3, 9)):
        need = sleep_for(arrived=arrived, unfinished=0, pending=pending, wait_num=wait_num)
        assert enough(
            arrived=arrived + need, unfinished=1, pending=pending - need, wait_num=wait_num, window_over=True
        )
