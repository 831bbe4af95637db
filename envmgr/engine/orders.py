"""Carries out what the machine says: one method of one part per instruction."""

from __future__ import annotations

from collections.abc import Iterable

from envmgr.engine import events as e
from envmgr.engine.blame import error_of
from envmgr.engine.core import Core
from envmgr.engine.inbox import Inbox
from envmgr.engine.outbox import Outbox
from envmgr.engine.replies import Replies
from envmgr.engine.troubles import Troubles
from envmgr.memory.arena import order_stores


class Orders:
    """Puts itself into ``core.obey``.

    Args:
        core: What the parts share.
        inbox: Of the results.
        outbox: Sends.
        replies: Gives abnormal timesteps.
        troubles: Uses force.
    """

    def __init__(
        self, core: Core, inbox: Inbox, outbox: Outbox, replies: Replies, troubles: Troubles
    ) -> None:
        self._core = core
        self._inbox = inbox
        self._outbox = outbox
        self._replies = replies
        self._troubles = troubles
        core.obey = self.obey

    def obey(self, orders: Iterable[e.Instruction]) -> None:
        """Does what the machine says. With the lock."""
        core = self._core
        ring: set[int] = set()
        for order in orders:
            if isinstance(order, e.SendReset):
                self._outbox.send_reset(order.env_id)
                ring.add(int(core.worker_of[order.env_id]))
            elif isinstance(order, e.SendStepAgain):
                self._outbox.send_again(order.env_id)
                ring.add(int(core.worker_of[order.env_id]))
            elif isinstance(order, e.Renew):
                self._troubles.renew(order.worker)
            elif isinstance(order, e.Kill):
                self._troubles.kill(order)
            elif isinstance(order, e.Retire):
                self._troubles.retire(order.worker)
            elif isinstance(order, e.Interrupt):
                self._troubles.interrupt(order.env_id)
            elif isinstance(order, e.GiveAbnormal):
                self._replies.give_abnormal(order.env_id, order.cause)
            elif isinstance(order, e.Fail):
                self._fail(order)
        if ring:
            order_stores()
            core.pool.ring(sorted(ring))
        if core.has_keeper and self._troubles.next_look() < core.keeper_due:
            core.pool.nudge()

    def _fail(self, order: e.Fail) -> None:
        core = self._core
        error = error_of(order, self._outbox.action_of(order.env_id) if order.what == "step" else None)
        if core.failure is None:
            core.failure, core.failure_closes = error, order.close
        if order.what == "step" and not order.close:  # the manager goes on without this result
            self._inbox.out -= 1
        core.pool.wake()
