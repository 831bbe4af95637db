"""Envs that fail on purpose: rehearse a bad day before it comes.

``FaultyEnv`` wraps any env (or stands alone) and fails as its ``Fault`` objects say: which kind, in which
call, at which step, in which episode, how likely. So one sees in advance what a config does about it::

    from envmgr.testing.faults import Fault, with_faults

    env_fns = with_faults([make_env] * 8, [Fault("segfault", probability=0.001), Fault("hang", at_step=100)])
    manager = create_env_manager({"type": "subprocess", "on_error": "reset", "step_timeout": 5}, env_fns)

``KINDS`` lists what there is. A ``Ledger`` is a file that tells what was done, also by processes that it
killed; it is what makes "only once, also after the worker was renewed" possible (``Fault(times=1)``).

Put nothing but ``raise`` and what only changes results into an env that runs in your own process (``base``):
it is your process that exits, stops or hangs then.
"""

from envmgr.testing.faults.fault import Fault
from envmgr.testing.faults.faulty_env import FaultyEnv, with_faults
from envmgr.testing.faults.kinds import EXIT_CODE, KINDS, FaultError, Kind
from envmgr.testing.faults.ledger import Ledger, Record

__all__ = [
    "EXIT_CODE",
    "KINDS",
    "Fault",
    "FaultError",
    "FaultyEnv",
    "Kind",
    "Ledger",
    "Record",
    "with_faults",
]
