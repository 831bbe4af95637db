"""What the parent does with one worker's socket and bell."""

from __future__ import annotations

import os
import select
import socket

from envmgr.workers.channel import ParentChannel, pack
from envmgr.workers.contract import Bell
from envmgr.workers.links import Link


def test_a_message_tells_who_polls_and_who_sleeps():
    """Close is one: a worker that polls its rows looks at its bell only where there is mail."""
    ours, theirs = socket.socketpair()
    link = Link(1, [-1, -1], set(), channel=ParentChannel(ours), gone=False)
    bell, stack = link.open_pipes()
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
        os.close(stack)
