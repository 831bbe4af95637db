"""Names of parametrized cases that are the same in every process."""

import re


def stable_repr(value: object) -> str:
    """``repr`` without the address of the object."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
