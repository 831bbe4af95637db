"""The soak: many envs that fail in every way at once, for minutes, and every timestep checked.

``make soak`` (``python -m envmgr.testing.soak``) spends its time in equal parts on sync and async managers
under fork and spawn. Each env writes into each observation whose it is, which instance, episode and step it
belongs to, which action it answers, and a checksum; ``Checker`` follows all of that in the caller. The faults
are counted by those who make them, in a file that survives them, and what the manager told of is held against
that.

    envs.py      what is run: an env whose every observation proves where it belongs, and the faults around it
    checker.py   pure: what was sent and what came back; counts what was lost, duplicated or mixed up
    tally.py     pure: faults made against failures told
    phase.py     one manager, run for so many seconds, then calmed down until all its envs are back
    report.py    the table, and whether all is well
"""

from envmgr.testing.soak.checker import Checker, Notice
from envmgr.testing.soak.phase import Phase, PhaseResult, run_phase
from envmgr.testing.soak.report import Report

__all__ = ["Checker", "Notice", "Phase", "PhaseResult", "Report", "run_phase"]
