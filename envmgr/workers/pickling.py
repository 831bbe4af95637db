"""Pickles by value what plain pickle cannot carry, and keeps the files that its code came from.

cloudpickle gives code that it carries by value (all that is defined in ``__main__``, lambdas, functions in
functions) a made-up file name, so that equal code has equal bytes. A traceback from a worker has to name the
user's file and line, so the name is put back.
"""

from __future__ import annotations

import collections
import functools
import io
import types
from collections.abc import Callable
from typing import Any


def dumps(value: Any) -> bytes:
    """The bytes of a value, by cloudpickle. Raises what pickling the value raises."""
    file = io.BytesIO()
    _pickler()(file).dump(value)
    return file.getvalue()


@functools.cache
def _pickler() -> Any:
    import cloudpickle

    make: Any = cloudpickle.Pickler.dispatch_table[types.CodeType]

    def reduce_code(code: types.CodeType) -> tuple[Any, ...]:
        build, args = make(code)[:2]
        return code_from, (build, args, code.co_filename)

    table = collections.ChainMap({types.CodeType: reduce_code}, cloudpickle.Pickler.dispatch_table)
    return type("Pickler", (cloudpickle.Pickler,), {"dispatch_table": table})


def code_from(build: Callable[..., types.CodeType], args: tuple[Any, ...], filename: str) -> types.CodeType:
    """Code of a file, where it is unpickled."""
    return build(*args).replace(co_filename=filename)
