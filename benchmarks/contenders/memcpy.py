"""memcpy: the bytes of all observations, copied once per batch, and nothing else; no env is stepped.

What a library that hands out arrays of its own can at the very best come near to. The same two blocks each
time, which the caches may hold. ``--option cold``: through so many blocks that no cache does, as for a caller
whose observations were written by another core.
"""

import itertools

import numpy as np
from harness import Running, Setup, main

COLD = 128 << 20
"""Bytes of blocks that no cache holds."""


def build(setup: Setup) -> Running:
    space = setup.make_fns()[0]().observation_space
    shape = (setup.envs, *space.shape)
    size = setup.envs * int(np.prod(space.shape)) * space.dtype.itemsize
    blocks = -(-COLD // size) if "cold" in setup.options else 1
    pairs = itertools.cycle(
        [(np.ones(shape, space.dtype), np.ones(shape, space.dtype)) for _ in range(blocks)]
    )

    def step() -> int:
        source, copy = next(pairs)
        np.copyto(copy, source)
        return setup.envs

    return Running(step, lambda: None)


if __name__ == "__main__":
    main(build, "gymnasium", "numpy")
