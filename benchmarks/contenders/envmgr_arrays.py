"""envmgr's ``subprocess`` manager by its array face; ``--workers`` as num_workers.

``--option half``: the async manager, sent what came back last while the other half is stepping.
``--option views``: arrays are not copied out (copy_on_get=False).
``--option fork``, ``spawn``, ``forkserver``: how the workers are started.
"""

from harness import Running, Setup, main

from envmgr import create_env_manager


def build(setup: Setup) -> Running:
    half = "half" in setup.options
    cfg = {
        "type": "async_subprocess" if half else "subprocess",
        "num_workers": setup.workers,
        "copy_on_get": "views" not in setup.options,
    }
    for context in {"fork", "spawn", "forkserver"}.intersection(setup.options):
        cfg["context"] = context
    if half:
        cfg.update(wait_num=max(1, setup.envs // 2), step_wait_timeout=0.0)
    manager = create_env_manager(cfg, setup.make_fns())
    manager.seed(0)
    manager.launch()
    manager.reset_arrays()
    slowest = max(manager.up_after) if setup.scenario == "slow_start" else None
    rows = setup.action_rows()
    n = setup.envs

    def step() -> int:
        manager.step_arrays(next(rows))
        return n

    def step_half() -> int:
        came = manager.recv()
        manager.send(next(rows)[came.env_id], came.env_id)
        return len(came.env_id)

    if half:
        manager.send(next(rows), list(range(n)))
    return Running(step_half if half else step, manager.close, slowest)


if __name__ == "__main__":
    main(build, "envmgr", "gymnasium", "numpy")
