"""Attributes of the envs through the manager, and what Python itself asks of an object."""

from __future__ import annotations

import copy
import pickle

from envmgr.errors import EnvManagerError
from envmgr.testing.conformance.harness import Harness, expect, refused, tally


class AttributesConformance(Harness):
    """Any other attribute is fetched from every env, as a list."""

    def test_attributes_of_the_envs(self) -> None:
        """Values, methods, pictures; one that no env has; one that cannot be pickled leaves all as it was."""
        manager = self.launched(tally(2))
        expect(list(manager.colour), ["colour-0", "colour-1"], "an attribute of every env")
        expect(list(manager.shout("hey")), ["hey-0", "hey-1"], "a method called on every env")
        images = manager.ready_imgs
        expect([int(images[i].max()) for i in range(2)], [0, 1], "the colours of ready_imgs")
        refused(AttributeError, lambda: manager.no_such_thing, says=("no_such_thing",))
        expect(hasattr(manager, "no_such_thing"), False, "hasattr of what no env has")
        pids = list(manager.pid)
        try:
            expect(len(manager.lock), 2, "locks fetched")
        except EnvManagerError as error:
            expect("lock" in str(error), True, f"the attribute is named in: {error}")
        expect(list(manager.pid), pids, "the processes after an attribute that cannot be pickled")
        expect(self.step(manager, {0: 0, 1: 0})[1].obs.tolist(), [1, 0, 1], "a step after")

    def test_what_python_asks_of_an_object(self) -> None:
        """No recursion, no traffic for private names; copies are refused; ``repr`` and ``dir`` work."""
        manager = self.made(tally(1))
        for launched in (False, True):
            if launched:
                manager.launch()
                self.ready(manager)
            for name in ("__deepcopy__", "__array__", "_repr_html_", "_private"):
                expect(hasattr(manager, name), False, f"hasattr of {name}")
            for how in (copy.copy, copy.deepcopy, pickle.dumps):
                refused((TypeError, EnvManagerError, pickle.PicklingError), how, manager)
            expect(type(manager).__name__ in repr(manager), True, f"its class is in {manager!r}")
            names = {"launch", "ready_obs", "step", "reset", "close"}
            expect(names - set(dir(manager)), set(), "what dir leaves out")
        expect({"reset", "step", "seed", "close"} - set(manager.method_name_list), set(), "method_name_list")
        empty = object.__new__(type(manager))
        expect(hasattr(empty, "__deepcopy__"), False, "hasattr of an object that was never initialised")
        refused((AttributeError, EnvManagerError), lambda: empty.anything)
