"""Does an env manager keep the contract? A suite to subclass, one line or two for a manager of one's own.

    from envmgr.testing.conformance import ManagerConformance

    class TestMyManager(ManagerConformance):
        def make_manager(self, env_fns, **cfg):
            return MyManager(env_fns, cfg)

pytest then runs every test of the contract against it: life, steps, ends of episodes, resets and their
params, seeds, attributes, failures, and the array face. The suite brings its own envs, which can be pickled
by reference, asks only for what the contract offers, and closes what it has made.

What a manager does not offer is left out by naming parts instead: ``DictFaceConformance`` is all but the
array face, ``ArrayFaceConformance`` that alone. A manager that returns as soon as some results are in adds
``GatheringConformance``. The parts themselves are a module each.

That a suite for implementations ships with the interface is an idea of dm_env's test utilities.
"""

from envmgr.testing.conformance.arrays import ArrayFaceConformance
from envmgr.testing.conformance.attributes import AttributesConformance
from envmgr.testing.conformance.episodes import EpisodesConformance
from envmgr.testing.conformance.failures import FailuresConformance
from envmgr.testing.conformance.gathering import GatheringConformance
from envmgr.testing.conformance.harness import Harness
from envmgr.testing.conformance.lifecycle import LifecycleConformance
from envmgr.testing.conformance.resets import ResetsConformance
from envmgr.testing.conformance.seeds import SeedsConformance
from envmgr.testing.conformance.stepping import SteppingConformance


class DictFaceConformance(
    LifecycleConformance,
    SteppingConformance,
    EpisodesConformance,
    ResetsConformance,
    SeedsConformance,
    AttributesConformance,
    FailuresConformance,
):
    """The contract of ``launch / ready_obs / step / reset / seed / close``."""


class ManagerConformance(DictFaceConformance, ArrayFaceConformance):
    """The whole contract of a manager: the dict face and the array face."""


__all__ = [
    "ArrayFaceConformance",
    "AttributesConformance",
    "DictFaceConformance",
    "EpisodesConformance",
    "FailuresConformance",
    "GatheringConformance",
    "Harness",
    "LifecycleConformance",
    "ManagerConformance",
    "ResetsConformance",
    "SeedsConformance",
    "SteppingConformance",
]
