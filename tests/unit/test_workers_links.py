"""What the parent does with one worker's socket and bell."""

from __future__ import annotations

import os
import select
import socket

import pytest

from envmgr.workers.channel import ChildChannel, ParentChannel, pack
from envmgr.workers.contract import HELLO, Bell
from envmgr.workers.links import Link


def test_a_message_tells_who_polls_and_who_sleeps():
    """Close is one: a worker that polls its rows looks at its bell only where there is mail."""
    ours, theirs = socket.socketpair()
    link = Link(1, [-1, -1], set(), channel=ParentChannel(ours), gone=False)
    bell = link.open_bell()
    link.mail = memoryview(bytearray(3))
    try:
        link.send(pack(("hello",)))
        assert link.mail.tolist() == [0, 1, 0]
        assert os.read(bell, 100) == bytes([Bell.MESSAGE])
        assert select.select([theirs], [], [], 0)[0] == [theirs]
    finally:
        link.let_go()
        theirs.close()
        os.close(bell)


@pytest.mark.parametrize("ask", [lambda link: link.answer(1), lambda link: link.extra(0, 1), Link.listen])
def test_the_first_word_of_a_worker_is_for_the_keeper(ask):
    """The caller, which had asked its predecessor something, took it, and nobody heard that it was up."""
    ours, theirs = socket.socketpair()
    link = Link(0, [-1], set(), channel=ParentChannel(ours), gone=False)
    try:
        ChildChannel(theirs).send((HELLO, {}))
        assert ask(link) is None
        link.pump()
        assert link.channel.messages.popleft()[0] == HELLO
    finally:
        link.let_go()
        theirs.close()
