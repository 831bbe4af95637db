"""What the facts mean: each check is a function from facts to findings, without an env or a process.

The levels: ``error`` is what breaks a run or the numbers of one; ``warning`` is what works, but hardly as it
was meant; ``note`` is good to know; ``ok`` says what was looked at and is fine; ``skipped`` what was not
reached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from envmgr.cli.checking.facts import Facts, Misfit, Times, Trouble
from envmgr.cli.checking.finding import Finding, Level, seconds, size


def judge(facts: Facts) -> list[Finding]:
    """Every check in order, with at least one finding each."""
    found: list[Finding] = []
    for name, check in _CHECKS:
        findings = [dataclasses.replace(finding, check=name) for finding in check(facts)]
        found += findings or [Finding(Level.SKIPPED, name, "not looked at: it did not get that far")]
    return found


def _ok(what: str) -> Finding:
    return Finding(Level.OK, "", what)


def _note(what: str, do: str = "") -> Finding:
    return Finding(Level.NOTE, "", what, do)


def _warning(what: str, do: str) -> Finding:
    return Finding(Level.WARNING, "", what, do)


def _error(what: str, do: str, place: str = "") -> Finding:
    return Finding(Level.ERROR, "", what, do, place)


_OPS = {
    "import": ("importing the module", "import"),
    "env_fn": ("building the env", "build"),
    "reset": ("reset", "resets"),
    "step": ("step", "steps"),
    "random_action": ("random_action", "actions"),
    "close": ("close", "close"),
}


def _trouble(trouble: Trouble, do: str = "") -> Finding:
    what = _OPS.get(trouble.op, (trouble.op or "the check", ""))[0]
    number = f" {trouble.count}" if trouble.op in ("reset", "step") else ""
    text = f"{what}{number} raised {trouble.text}" if trouble.kind == "raised" else trouble.text
    if not do:
        do = {
            "raised": "a run ends with EnvStepError or EnvResetError here, unless on_error='reset'",
            "hung": "a run waits for step_timeout or reset_timeout here, then the env is renewed",
            "died": "a run ends with WorkerDied here; with on_error='reset' the env is renewed",
        }[trouble.kind]
    return _error(text, do, trouble.place)


def _troubles(facts: Facts, *ops: str) -> list[Trouble]:
    return [trouble for trouble in facts.troubles if trouble.op in ops]


def _build(facts: Facts) -> Iterator[Finding]:
    for trouble in _troubles(facts, "import", "env_fn", ""):
        yield _trouble(trouble, "the env_fn must build an env when it is called without arguments")
    if facts.env:
        yield _ok(f"{facts.env}, in {seconds(facts.build_time)}; treated as {facts.style}")


def _pickles(facts: Facts) -> Iterator[Finding]:
    if facts.pickle_error:
        yield _error(
            f"the factory does not pickle: {facts.pickle_error}",
            "context='spawn' and 'forkserver', and programs with threads, need it to: open files inside it",
        )
    elif facts.factory_bytes > _LARGE_FACTORY:
        yield _warning(
            f"the factory pickles to {size(facts.factory_bytes)}, sent to each worker",
            "load large data inside it",
        )
    elif facts.factory_bytes:
        yield _ok(f"{size(facts.factory_bytes)}, works with every start method")


_LARGE_FACTORY = 1_000_000  # bytes


def _spaces(facts: Facts) -> Iterator[Finding]:
    if not facts.env:
        return
    if facts.observation_space is None:
        yield _warning(
            "the env has no observation_space",
            "its observations go by the side channel, pickled; define one to have them in shared memory",
        )
    if facts.action_space is None:
        yield _warning(
            "the env has no action_space",
            "define one: without it actions are not checked, and here no step was tried",
        )
    found = [m for m in facts.misfits if m.kind in ("structure", "shape", "foreign")]
    for misfit in found:
        yield _misfit(misfit, Level.ERROR, "a run ends with SpaceMismatchError: correct the space or the env")
    aside = [name or "the observation" for name, about in facts.leaves if about == "side"]
    if aside and facts.observation_space is not None:
        yield _note(
            f"no fixed size: {', '.join(aside)}",
            "carried by the side channel, pickled: slower",
        )
    if not found and facts.reset_times:
        leaves = ", ".join(f"{name}{' ' if name else ''}{about}" for name, about in facts.leaves[:4])
        more = f" and {len(facts.leaves) - 4} more" if len(facts.leaves) > 4 else ""
        count = len(facts.reset_times) + facts.steps
        yield _ok(f"{count} observations have the structure and shape of it: {leaves}{more}")


def _dtypes(facts: Facts) -> Iterator[Finding]:
    if not facts.reset_times:
        return
    found = [m for m in facts.misfits if m.kind in ("lossy", "rounded", "cast")]
    for misfit in found:
        if misfit.kind == "lossy":
            yield _misfit(
                misfit, Level.ERROR, "a run ends with SpaceMismatchError: correct the space's dtype"
            )
        elif misfit.kind == "rounded":
            do = "they are rounded at each step: return float32, or make the space float64"
            yield _misfit(misfit, Level.WARNING, do)
        else:
            yield _misfit(misfit, Level.NOTE, "no value changes, but each step pays for the cast")
    if not found:
        yield _ok("observations have the dtypes of their space")


def _bounds(facts: Facts) -> Iterator[Finding]:
    if not facts.reset_times:
        return
    found = [m for m in facts.misfits if m.kind in ("bounds", "range", "nan")]
    for misfit in found:
        if misfit.kind == "range":
            yield _misfit(
                misfit, Level.ERROR, "what counts on the space (one-hot, embeddings) breaks: correct its n"
            )
        elif misfit.kind == "bounds":
            yield _misfit(
                misfit, Level.WARNING, "nothing here breaks, but what scales by the bounds is wrong"
            )
        else:
            yield _misfit(misfit, Level.WARNING, "a network fed with it learns nothing more")
    if not found:
        yield _ok("observations are within the bounds of their space")


def _misfit(misfit: Misfit, level: Level, do: str) -> Finding:
    often = f"; {misfit.count} times" if misfit.count > 1 else ""
    leaf = f"{misfit.leaf}: " if misfit.leaf and misfit.leaf not in misfit.text else ""
    return Finding(level, "", f"{leaf}{misfit.text} (first in {misfit.at}{often})", do)


_VALUES = {
    "result": (
        Level.ERROR,
        "step returns something else",
        "return (obs, reward, terminated, truncated, info)",
    ),
    "reward": (Level.ERROR, "the reward is no number", "return a float, or define reward_space for a vector"),
    "reward shape": (Level.WARNING, "the reward's shape", "define reward_space, or return a plain float"),
    "reward dtype": (
        Level.ERROR,
        "the reward does not fit its reward_space",
        "a run ends with SpaceMismatchError: correct the dtype of reward_space",
    ),
    "reward rounded": (
        Level.WARNING,
        "the reward",
        "it is rounded at each step: return float32, or make the reward_space float64",
    ),
    "reward nan": (Level.WARNING, "the reward", "a network fed with it learns nothing more"),
    "mismatch": (Level.ERROR, "what the env returns", "a run ends with SpaceMismatchError here"),
    "flag": (Level.ERROR, "an end that is no truth value", "return True or False"),
    "info": (Level.ERROR, "the info is no dict", "return a dict, empty if there is nothing to say"),
}


def _values(facts: Facts) -> Iterator[Finding]:
    for kind, text in facts.values.items():
        level, what, do = _VALUES[kind]
        yield Finding(level, "", f"{what}: {text}", do)
    if not facts.values and facts.steps:
        yield _ok("rewards are numbers, ends are truth values, infos are dicts")


def _infos(facts: Facts) -> Iterator[Finding]:
    for key, text in facts.unpicklable.items():
        yield _warning(
            f"{key} does not pickle: {text}",
            "it is dropped on its way to you (or an error, with info_errors='raise'): leave it out",
        )
    if not facts.unpicklable and facts.reset_times:
        yield _ok(f"at most {size(facts.info_bytes)}" if facts.info_bytes else "empty at every step")


def _resets(facts: Facts) -> Iterator[Finding]:
    for trouble in _troubles(facts, "reset"):
        if trouble.kind == "raised" and trouble.count > 1:
            only = "only the first reset works" if trouble.count == 2 else "resets do not always work"
            yield _error(
                f"{only}: reset {trouble.count} raised {trouble.text}",
                "make it work again and again; if it cannot, retry_type='renew' builds the env anew",
                trouble.place,
            )
        else:
            yield _trouble(trouble)
    if _troubles(facts, "reset") or not facts.reset_times:
        return
    count, ends = len(facts.reset_times), len(facts.episode_lengths)
    if ends:
        mean = sum(facts.episode_lengths) / ends
        how = f"{count} of them: {ends} after an episode's end (mean length {mean:.0f})"
        yield _ok(how if facts.seeding is None else f"{how}, in the middle of one, twice in a row")
    elif facts.seeding is None:
        yield _ok(f"{count} so far, none failed")
    else:
        yield _note(f"no episode ended within {facts.steps} steps; resets in the middle of one work")


def _steps(facts: Facts) -> Iterator[Finding]:
    for trouble in _troubles(facts, "step", "random_action"):
        yield _trouble(trouble)
    if not _troubles(facts, "step", "random_action") and facts.steps:
        yield _ok(f"{facts.steps} with random actions, none failed")


def _seeds(facts: Facts) -> Iterator[Finding]:
    seeding = facts.seeding
    if seeding is None:
        return
    if seeding.same_seed and seeding.same_seed_and_globals == "":
        yield _warning(
            f"the seed alone does not fix the numbers ({seeding.same_seed})"
            ", seeds of the global generators do",
            "envmgr seeds those, too: reproducible with one env per worker. Better use self.np_random",
        )
    elif seeding.same_seed_and_fresh == "":
        yield _warning(
            f"reproducible only from a new env: something lives on over resets ({seeding.same_seed})",
            "runs are reproducible, single episodes are not: set everything back in reset",
        )
    elif seeding.same_seed:
        level = Level.ERROR if seeding.takes_seed else Level.WARNING
        why = (
            "not reproducible: the same seed twice gives two trajectories"
            if seeding.takes_seed
            else ("not reproducible: the env takes no seed")
        )
        yield Finding(
            level,
            "",
            f"{why} ({seeding.same_seed})",
            "draw every random number from self.np_random, seeded by reset",
        )
    elif not seeding.seeds_differ:
        yield _note(
            f"reproducible, but two seeds give the same trajectory over {seeding.steps} steps",
            "right if nothing in the env is random; otherwise its seed is not used",
        )
    else:
        yield _ok(f"the same seed gives the same {seeding.steps} steps, another seed gives others")


def _globals(facts: Facts) -> Iterator[Finding]:
    by_name: dict[str, list[str]] = {}
    for name, op in facts.globals_used:
        by_name.setdefault(name, []).append({"env_fn": "building", "import": "importing"}.get(op, op))
    during = {name: ops for name, ops in by_name.items() if set(ops) & {"step", "reset"}}
    for name, ops in during.items():
        yield _warning(
            f"{name}: the global generator is used in {' and '.join(ops)}",
            "envs in one worker disturb each other: use self.np_random, or isolate_rng=True",
        )
    for name, ops in by_name.items():
        if name not in during:
            yield _note(f"{name}: the global generator is used in {' and '.join(ops)}")
    if not by_name and facts.reset_times:
        yield _ok("random and numpy.random are left alone")


def _buffers(facts: Facts) -> Iterator[Finding]:
    for leaf, text in facts.reused.items():
        yield _warning(
            f"{leaf + ': ' if leaf else ''}the env reuses its buffer: {text}",
            "envmgr copies, so nothing breaks; a plain loop that keeps what it got is wrong: return a copy",
        )
    if not facts.reused and facts.steps:
        yield _ok("what was returned is not written to later")


def _close(facts: Facts) -> Iterator[Finding]:
    for trouble in _troubles(facts, "close"):
        yield _trouble(trouble, "what the env holds may stay open")
    if facts.closed:
        yield _ok("comes back")


def _size(facts: Facts) -> Iterator[Finding]:
    if facts.reset_times:
        info = f", and an info of up to {size(facts.info_bytes)}" if facts.info_bytes else ""
        yield _ok(f"{size(facts.obs_bytes)} of observation per step in shared memory{info}")


def _times(facts: Facts) -> Iterator[Finding]:
    parts = []
    for name, times in (("step", Times.of(facts.step_times)), ("reset", Times.of(facts.reset_times))):
        if times is not None:
            parts.append(f"{name} {seconds(times.mean)} (99th percentile {seconds(times.p99)})")
    if parts:
        yield _ok(", ".join(parts))


_CHECKS: tuple[tuple[str, Callable[[Facts], Iterator[Finding]]], ...] = (
    ("build", _build),
    ("factory", _pickles),
    ("spaces", _spaces),
    ("dtypes", _dtypes),
    ("bounds", _bounds),
    ("values", _values),
    ("infos", _infos),
    ("resets", _resets),
    ("steps", _steps),
    ("seeds", _seeds),
    ("global generators", _globals),
    ("buffers", _buffers),
    ("close", _close),
    ("size", _size),
    ("time", _times),
)
