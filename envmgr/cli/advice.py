"""What ``envmgr doctor`` makes of the facts: each line says what is the matter and what to do. Pure."""

from __future__ import annotations

from envmgr.cli.facts import Facts

_MB, _GB = 1_000_000, 1_000_000_000
_LITTLE_SHM = 256 * _MB
_LITTLE_MEMORY = _GB
_FEW_FILES = 4_096
_FEW_PROCESSES = 512


def advice(facts: Facts) -> list[str]:
    """Everything worth doing something about, the gravest first; empty when all is well."""
    found = [
        _python(facts),
        _missing(facts),
        _memory(facts),
        _cores(facts),
        _start_methods(facts),
        _files(facts),
        _processes(facts),
        _shm(facts),
        _blas(facts),
    ]
    return [line for line in found if line]


def _python(facts: Facts) -> str | None:
    version = facts.versions.get("python") or "0"
    if tuple(int(part) for part in version.split(".")[:2]) < (3, 11):
        return f"Python {version} is too old: envmgr needs 3.11 or newer"
    return None


def _missing(facts: Facts) -> str | None:
    missing = [name for name in ("numpy", "gymnasium") if facts.versions.get(name, "?") is None]
    return f"{' and '.join(missing)} not installed: pip install {' '.join(missing)}" if missing else None


def _memory(facts: Facts) -> str | None:
    free = facts.memory_free
    whose = "the machine"
    if facts.memory_limit is not None:
        left = facts.memory_limit - (facts.memory_used or 0)
        if left < free:
            free, whose = left, "the container"
    if free >= _LITTLE_MEMORY:
        return None
    return (
        f"only {max(0, free) // _MB} MB of memory left in {whose}: use fewer workers (num_workers), or give "
        "it more memory"
    )


def _cores(facts: Facts) -> str | None:
    cores = facts.usable_cores
    if facts.cpu_quota is not None and facts.cpu_quota < cores:
        return (
            f"the container is given {facts.cpu_quota:g} cores' worth of time, though {cores} are in sight: "
            "go by the smaller number when you choose num_workers"
        )
    if cores < facts.cores:
        return (
            f"this process may use {cores} of {facts.cores} cores: workers inherit that; widen it (taskset, "
            "--cpuset-cpus, the scheduler's request) if it is not meant"
        )
    if cores == 1:
        return "one core: for light envs type='base' is as fast as any worker, and simpler"
    return None


def _start_methods(facts: Facts) -> str | None:
    if "fork" not in facts.start_methods:
        return (
            "no fork on this platform: context='spawn' imports everything anew in each worker, so prefer few "
            "workers with several envs each (num_workers)"
        )
    return None


def _files(facts: Facts) -> str | None:
    if facts.fd_soft is None or facts.fd_soft >= _FEW_FILES:
        return None
    workers = max(1, (facts.fd_soft - 64) // 4)
    text = f"{facts.fd_soft} open files per process are enough for some {workers} workers"
    if facts.fd_hard is None or facts.fd_hard > facts.fd_soft:
        return f"{text}: for more, `ulimit -n {min(facts.fd_hard or 65_536, 65_536)}`"
    return f"{text}: for more, ask for a higher hard limit, or use num_workers"


def _processes(facts: Facts) -> str | None:
    if facts.process_limit is None or facts.process_limit >= _FEW_PROCESSES:
        return None
    return (
        f"at most {facts.process_limit} processes and threads: raise it (`ulimit -u`, --pids-limit), or put "
        "several envs into a worker (num_workers)"
    )


def _shm(facts: Facts) -> str | None:
    if facts.shm_total is None or facts.shm_total >= _LITTLE_SHM:
        return None
    return (
        f"/dev/shm has {facts.shm_total // _MB} MB: envmgr does not need it, but data loaders of torch and "
        "Ray do (docker run --shm-size=2g)"
    )


def _blas(facts: Facts) -> str | None:
    for name, value in facts.blas.items():
        if value.isdigit() and int(value) > 1:
            return f"{name}={value}: every worker starts that many BLAS threads; unset, each has one"
    return None
