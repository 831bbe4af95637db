"""The parent dies, is interrupted, or simply ends: its workers go, quietly."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.helpers.managers import CONTEXTS
from tests.helpers.scripts import wait_gone
from tests.helpers.sync import shared_memory, wait_no_more_shared_memory, wait_until

STUCK = """
before = Signal(HERE / "before")
fns = many(envs.FaultyEnv, 3, step_fault={fault!r}, before=before)
manager = make(fns, step_timeout=None)
manager.launch()
while len(manager.ready_obs) < 3:
    pass
manager.step({{0: 0, 1: 0, 2: 0}})
"""


@pytest.mark.case("F04", "S02")
@pytest.mark.parametrize(
    ("number", "fault"),
    [(signal.SIGKILL, "hang_gil"), (signal.SIGTERM, "sleep"), (signal.SIGKILL, "stubborn")],
    ids=["killed-in-c", "terminated-in-sleep", "killed-ignoring-everything"],
)
@pytest.mark.parametrize("context", CONTEXTS)
def test_parent_dies_while_envs_are_in_a_ten_minute_call(script, signal_at, context, number, fault):
    one = script(STUCK.format(fault=fault), "subprocess", context)
    before = signal_at(one.here / "before")
    shm = shared_memory()
    before.wait(3, 40)
    family = one.family()
    assert len(family) >= 3
    one.signal(number)
    one.wait(5)
    wait_gone(family, 5.0)
    assert one.err == ""
    wait_no_more_shared_memory(shm)
    assert os.listdir(one.here / "tmp") == []


LOST = {
    "in an env_fn": """
def stuck(i):
    before.post()
    envs.hang_in_c()


make([partial(stuck, i) for i in range(4)], envs_per_worker=2, connect_timeout=None).launch()
""",
    "in a reset": """
fns = many(envs.FaultyEnv, 4, reset_fault="stubborn", at_reset=2, before=before)
manager = make(fns, envs_per_worker=2, reset_timeout=None)
manager.launch()
while len(manager.ready_obs) < 4:
    pass
manager.reset()
time.sleep(600)
""",
    "in a renewal": """
def stuck_later(i):
    if not first_time(HERE / f"built {i}"):
        before.post()
        envs.hang_in_c()
    return envs.FaultyEnv(i, step_fault="exit")


fns = [partial(stuck_later, i) for i in range(4)]
manager = make(fns, envs_per_worker=2, on_error="reset", connect_timeout=None)
manager.launch()
while len(manager.ready_obs) < 4:
    pass
manager.step({0: 0, 2: 0})
log.add("told")
time.sleep(600)
""",
    "stopped": """
manager = make(many(envs.CounterEnv, 4), envs_per_worker=2)
manager.launch()
while len(manager.ready_obs) < 4:
    pass
for pid in set(manager.where_pid):
    os.kill(pid, signal.SIGSTOP)
    before.post()
time.sleep(600)
""",
}


@pytest.mark.case("F04", "S02")
@pytest.mark.parametrize(
    ("where", "context"),
    [
        ("in an env_fn", "fork"),
        ("in an env_fn", "spawn"),
        ("in a reset", "fork"),
        ("in a renewal", "fork"),
        ("stopped", "fork"),
    ],
)
def test_parent_dies_while_workers_cannot_go_by_themselves(script, signal_at, where, context):
    """What has started them survives it, lets those go that can, and kills the others."""
    shm = shared_memory()
    head = 'from tests.helpers.sync import first_time\n\nbefore = Signal(HERE / "before")\n'
    one = script(head + LOST[where], "subprocess", context)
    signal_at(one.here / "before").wait(2, 40)
    if where == "in a renewal":
        one.log.wait("told")
    told = one.err
    assert "worker 1 is gone" in told if where == "in a renewal" else told == "", told
    assert len(one.family()) >= 3, "two workers and the nursery"
    one.signal(signal.SIGKILL)
    one.wait(5)
    one.wait_all_gone(5.0)
    assert one.err == told
    wait_no_more_shared_memory(shm)
    assert os.listdir(one.here / "tmp") == []


NESTED = """
before = Signal(HERE / "before")
fault = partial(envs.FaultyEnv, step_fault="stubborn", before=before)
manager = make([partial(envs.ManagingEnv, fault, CONTEXT)] * 2, step_timeout=None)
manager.launch()
while len(manager.ready_obs) < 2:
    pass
manager.step({0: 0, 1: 0})
"""


@pytest.mark.case("F04", "F16")
@pytest.mark.parametrize("context", CONTEXTS)
def test_workers_of_a_manager_in_an_env_go_as_well(script, signal_at, context):
    one = script(NESTED, "subprocess", context)
    before = signal_at(one.here / "before")
    before.wait(2, 40)
    family = one.family()
    assert len(family) >= 6, "two nurseries' workers under two workers"
    one.signal(signal.SIGKILL)
    one.wait(5)
    wait_gone(family, 5.0)
    assert one.err == ""


IDLE = """
manager = make(many(envs.CounterEnv, 3, log=log), envs_per_worker={epw})
manager.launch()
while len(manager.ready_obs) < 3:
    pass
manager.step({{0: 0, 1: 0, 2: 0}})
log.add("ready")
{end}
"""


@pytest.mark.case("O25", "F04", "S01")
@pytest.mark.parametrize("how", ["sigkill", "os._exit"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_children_that_get_end_of_file_call_their_envs_close(script, context, how):
    end = "os._exit(0)" if how == "os._exit" else "time.sleep(600)"
    one = script(IDLE.format(epw=2 if how == "sigkill" else 1, end=end), "subprocess", context)
    one.log.wait("ready", deadline=40)
    family = one.family() if how == "sigkill" else []
    if how == "sigkill":
        one.signal(signal.SIGKILL)
    one.wait(5)
    closed = one.log.wait("close", 3, 5)
    assert sorted(words[1] for words in closed) == ["0", "1", "2"]
    wait_gone(family, 5.0)
    assert one.err == ""


LAST_WORDS = """
manager = make([partial(envs.LastWordsEnv, here=HERE, log=log, info={info})] * 2, step_timeout=None)
manager.launch()
while len(manager.ready_obs) < 2:
    pass
{step}
time.sleep(600)
"""


@pytest.mark.case("F04", "O25")
@pytest.mark.parametrize("info", [True, False])
@pytest.mark.parametrize(
    "step", ["manager.step({0: 0, 1: 0})", "manager.send([0, 0])"], ids=["it sleeps", "it computes"]
)
def test_a_step_that_ends_after_the_parent_closes_its_env(script, signal_at, step, info):
    """What the worker has to say then, and whom it would wake, is nobody's any more."""
    one = script(LAST_WORDS.format(step=step, info=info), "subprocess", "fork")
    stepping, go_on = signal_at(one.here / "stepping"), signal_at(one.here / "go on")
    stepping.wait(2, 40)
    family = one.family()
    one.signal(signal.SIGKILL)
    one.wait(5)
    go_on.post(2)
    assert len(one.log.wait("close", 2, 5)) == 2
    wait_gone(family, 5.0)
    assert one.err == ""


@pytest.mark.case("S02")
@pytest.mark.parametrize("kind", ["subprocess", "async_subprocess"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_the_whole_tree_killed_leaves_nothing(script, kind, context):
    shm = shared_memory()
    one = script(IDLE.format(epw=1, end="time.sleep(600)"), kind, context)
    one.log.wait("ready", deadline=40)
    family = one.family()
    for process in [one.process, *family]:
        process.suspend()
    for process in [one.process, *family]:
        process.kill()
    one.wait(5)
    wait_gone(family, 5.0)
    wait_no_more_shared_memory(shm)
    assert os.listdir(one.here / "tmp") == []
    assert one.err == ""


STEPPING = """
n = 32
manager = make(many(envs.CounterEnv, n, length=50), envs_per_worker={epw})
with manager:
    manager.launch()
    k = 0
    while True:
        ready = manager.ready_obs
        manager.step({{i: 0 for i in ready}})
        k += 1
        if k == 50:
            log.add("stepping")
"""


def press_all(processes):
    """Sends SIGINT to each by its own pid, as who stops a whole job may; to how many."""
    hit = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)
            hit += 1
    return hit


def assert_only_a_ctrl_c(err):
    """One traceback, and nothing before it or after it."""
    assert err.startswith("Traceback (most recent call last):\n"), err
    assert err.count("Traceback") == 1, err
    assert err.endswith("\nKeyboardInterrupt\n"), err
    assert "Exception ignored" not in err and "Error in atexit" not in err


@pytest.mark.case("F05")
@pytest.mark.parametrize("kind", ["subprocess", "async_subprocess"])
@pytest.mark.parametrize(("context", "epw"), [("fork", 1), ("spawn", 8), ("forkserver", 8)])
def test_ctrl_c_gives_one_traceback_in_the_parent(script, kind, context, epw):
    one = script(STEPPING.format(epw=epw), kind, context)
    one.log.wait("stepping", deadline=40)
    family = one.family()
    assert press_all(family) >= 32 // epw
    one.signal(signal.SIGINT, group=True)
    code = one.wait(5)
    wait_gone(family, 5.0)
    assert code in (-signal.SIGINT, 1, 130)
    assert_only_a_ctrl_c(one.err)


@pytest.mark.case("F05")
def test_ctrl_c_while_an_env_is_stuck(script, signal_at):
    one = script(STUCK.format(fault="stubborn"), "subprocess", "fork")
    signal_at(one.here / "before").wait(3, 40)
    family = one.family()
    press_all(family)
    one.signal(signal.SIGINT, group=True)
    one.wait(8)
    wait_gone(family, 5.0)
    assert_only_a_ctrl_c(one.err)


AT_WORK = """
class Env(envs.CounterEnv):
    def __init__(self, *args, **kwargs):
        log.add("building")
        Signal(HERE / "build").pass_through()
        super().__init__(*args, **kwargs)


entered, gate, reset_gate = (Signal(HERE / name) for name in ("entered", "step", "reset"))
fns = many(Env, 2, log=log, entered=entered, gate=gate, reset_gate=reset_gate)
with make(fns, wait_num=2, close_grace=40) as manager:
    manager.launch()
    while len(manager.ready_obs) < 2:
        pass
    log.add("idle")
    Signal(HERE / "go on").pass_through()
    told = manager.step({0: 0, 1: 0})
    assert {i: told[i].obs.tolist() for i in told} == {0: [0, 0, 1], 1: [1, 0, 1]}
    manager.reset()
    while len(manager.ready_obs) < 2:
        pass
    assert {i: obs.tolist() for i, obs in manager.ready_obs.items()} == {0: [0, 1, 0], 1: [1, 1, 0]}
"""


@pytest.mark.case("F05")
@pytest.mark.parametrize(("kind", "context"), [("subprocess", "fork"), ("async_subprocess", "spawn")])
def test_ctrl_c_that_hits_only_workers_and_what_starts_them_is_nothing_to_them(
    script, signal_at, kind, context
):
    """It is the program's own business. They lead groups of their own, so no terminal sends them one."""
    one = script(AT_WORK, kind, context)
    build, go_on, entered, step, reset = (
        signal_at(one.here / name) for name in ("build", "go on", "entered", "step", "reset")
    )

    def press():
        assert press_all(one.family()) >= 3, "two workers and the nursery"

    one.log.wait("building", 2, 40)
    press()
    build.post(2)
    one.log.wait("idle", deadline=40)
    press()
    go_on.post()
    entered.wait(2)
    press()
    step.post(2)
    one.log.wait("reset", 4)
    press()
    reset.post(2)
    assert one.wait(20) == 0, one.err
    assert one.err == ""
    assert len(one.log.lines("building")) == 2, "no worker had to be replaced"
    assert len(one.log.lines("close")) == 2
    one.wait_all_gone()


COMING_AND_GOING = """
log.add("begin")
with make(many(envs.CounterEnv, 3)) as manager:
    manager.launch()
    for _ in range(50):
        manager.step({i: 0 for i in manager.ready_obs})
log.add("end")
"""


@pytest.mark.case("F05")
def test_no_ctrl_c_finds_a_moment_in_which_a_worker_minds(script):
    """Nor while its interpreter starts, before it could say so."""
    one = script(COMING_AND_GOING, "subprocess", "spawn")
    one.log.wait("begin", deadline=40)

    def pressed_to_the_end():
        press_all(one.family())
        return one.log.lines("end") or one.popen.poll() is not None

    wait_until(pressed_to_the_end, "the program to end", 40)
    assert one.wait(20) == 0, one.err
    assert one.err == ""
    one.wait_all_gone()


SLOW_TO_CLOSE = """
class Env(envs.CounterEnv):
    def close(self):
        super().close()
        Signal(HERE / "never").pass_through()


sys.managers = [make(many(Env, 2, log=log), close_grace=40, step_timeout=None) for _ in range(2)]
for manager in sys.managers:
    manager.launch()
"""


@pytest.mark.case("F05", "F07")
def test_ctrl_c_while_everything_is_closed_at_the_end(script):
    """Who presses it then has no time: no manager is waited for any longer, and nothing is told."""
    one = script(SLOW_TO_CLOSE, "subprocess", "fork")
    one.log.wait("close", 2, 40)
    family = one.family()
    assert len(family) >= 4
    one.signal(signal.SIGINT)
    one.log.wait("close", 4, 20)  # of the other manager
    one.signal(signal.SIGINT)
    assert one.wait(20) == 0
    wait_gone(family, 10.0)
    assert one.err == ""


LAUNCHING = """
log.add("launching")
manager = make(many(envs.CounterEnv, 8))
manager.launch()
log.add("launched")
while True:
    manager.step({i: 0 for i in manager.ready_obs})
"""


@pytest.mark.case("F05")
@pytest.mark.parametrize("context", CONTEXTS)
def test_ctrl_c_during_launch(script, context):
    one = script(LAUNCHING, "subprocess", context)
    one.log.wait("launching", deadline=40)
    wait_until(lambda: one.family(), "the first of those that it starts", 20)
    one.signal(signal.SIGINT, group=True)
    one.wait(8)
    one.wait_all_gone()
    assert_only_a_ctrl_c(one.err)


SLOW_TO_IMPORT = """
if __name__ != "__main__":
    log.add("importing")
    Signal(HERE / "never").pass_through()


if __name__ == "__main__":
    manager = make(many(envs.CounterEnv, 2), connect_timeout={limit})
    manager.launch()
"""


@pytest.mark.case("F05")
@pytest.mark.parametrize("limit", [None, 3.0], ids=["ctrl-c", "connect_timeout"])
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_launch_is_broken_off_before_the_first_worker_has_started(script, context, limit):
    """What starts the workers imports the main module first, and that never ends here."""
    one = script(SLOW_TO_IMPORT.format(limit=limit), "subprocess", context, guard=False)
    one.log.wait("importing", deadline=40)
    family = one.family()
    assert family
    if limit is None:
        one.signal(signal.SIGINT, group=True)
    one.wait(8)
    wait_gone(family, 5.0)
    assert one.err.count("Traceback (most recent call last)") == 1, one.err
    last = one.err.strip().splitlines()[-1]
    assert last == "KeyboardInterrupt" if limit is None else "EnvInitTimeoutError" in last, one.err


ENDING = """
manager = make(many(envs.CounterEnv, 3, log=log), **{cfg})
manager.launch()
while len(manager.ready_obs) < 3:
    pass
manager.reset_arrays()
{end}
"""


def ending(end, **cfg):
    """A program that ends in this way."""
    return ENDING.format(end=end, cfg=cfg)


KILL = "os.kill(manager.where_pid[1], signal.SIGKILL)\n"

ENDINGS = {
    "no close": "",
    "close": "manager.close()",
    "close twice": "manager.close(); manager.close()",
    "del": "del manager; gc.collect()",
    "del after a worker was killed": KILL + "del manager; gc.collect()",
    "no close after a worker was killed": KILL,
    "close after a worker was killed": KILL + "manager.close()",
    "no close with steps pending": "manager.send([0, 0, 0])",
    "sys.exit": "sys.exit(0)",
    "a fork that ends by itself": (
        "child = os.fork()\nif child == 0:\n    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\nmanager.close()"
    ),
    "in a reference cycle": "box = [manager]\nbox.append(box)\ndel manager",
}


def assert_quiet(err, how):
    """Nothing on stderr; where a worker was killed that may have been noticed, and told in one line."""
    told = r"(worker 1 is gone: process \d+ was killed by SIGKILL[^\n]*; its envs: \[1\]\n)?"
    assert re.fullmatch(told if "killed" in how else "", err), err


@pytest.mark.case("F07", "S01")
@pytest.mark.parametrize("how", ENDINGS)
def test_ending_a_program_under_fork(script, how):
    one = script(ending(ENDINGS[how]), "subprocess", "fork")
    assert one.wait(20) == 0
    assert_quiet(one.err, how)
    one.wait_all_gone()


@pytest.mark.case("F07", "S01")
@pytest.mark.parametrize("how", ["no close", "close twice", "del after a worker was killed"])
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_ending_a_program_under_other_start_methods(script, how, context):
    one = script(ending(ENDINGS[how]), "async_subprocess", context)
    assert one.wait(30) == 0
    assert_quiet(one.err, how)
    one.wait_all_gone()


@pytest.mark.case("F07")
@pytest.mark.parametrize("how", ["no close", "del"])
@pytest.mark.parametrize("limit", [None, 60.0], ids=["without a limit", "with a watchdog"])
def test_ending_a_program_without_processes(script, how, limit):
    body = ending("manager.step_arrays([0, 0, 0])\n" + ENDINGS[how], step_timeout=limit)
    one = script(body, "base", "fork")
    assert one.wait(20) == 0
    assert one.err == ""
    assert len(one.log.lines("close")) == 3


@pytest.mark.case("F07")
@pytest.mark.parametrize("how", ["no close", "close", "del"])
def test_that_a_worker_was_killed_is_told_once_if_it_was_noticed_before_the_end(script, signal_at, how):
    wait = KILL + 'Signal(HERE / "go on").pass_through()\n'
    one = script(ending(wait + ENDINGS[how]), "subprocess", "fork")
    wait_until(lambda: one.err.endswith("\n"), "the death to be told", 40)
    signal_at(one.here / "go on").post()
    assert one.wait(20) == 0
    assert one.err
    assert_quiet(one.err, "killed")


WITHOUT_STREAMS = """
os.closerange(0, 3)
manager = make(many(envs.CounterEnv, 2))
try:
    manager.launch()
    log.add("launched")
except Exception as error:
    log.add(type(error).__name__)
manager.close()
"""


@pytest.mark.case("F07")
@pytest.mark.parametrize(("context", "word"), [("fork", "launched"), ("spawn", "EnvInitError")])
def test_a_program_without_standard_streams(script, context, word):
    """Python cannot start an interpreter there, which is said as an error of ours."""
    one = script(WITHOUT_STREAMS, "subprocess", context)
    assert one.wait(30) == 0
    one.log.wait(word, deadline=5)


@pytest.mark.case("F07")
def test_an_exception_in_the_program_is_the_only_thing_on_stderr(script):
    one = script(ending('raise ValueError("mine")'), "subprocess", "fork")
    assert one.wait(20) == 1
    assert one.err.startswith("Traceback") and one.err.count("Traceback") == 1, one.err
    assert one.err.endswith("\nValueError: mine\n"), one.err
    one.log.wait("close", 3, 5)


@pytest.mark.case("F09", "F07")
@pytest.mark.parametrize("context", CONTEXTS)
def test_at_interpreter_exit_each_envs_close_is_called(script, context):
    one = script(ending(""), "subprocess", context)
    assert one.wait(30) == 0
    assert len(one.log.wait("close", 3, 5)) == 3


@pytest.mark.case("A05")
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_script_without_a_main_guard_ends_with_advice(script, context):
    body = """
    manager = make(many(envs.CounterEnv, 2))
    manager.launch()
    while len(manager.ready_obs) < 2:
        pass
    manager.step({0: 0, 1: 0})
    manager.close()
    """
    one = script(body, "subprocess", context, guard=False)
    code = one.wait(20)
    if context == "forkserver" and code == 0:
        assert one.err == "", "a fork server that never imports the script has no need of advice"
        return
    assert code != 0
    assert "__main__" in one.err and "if __name__" in one.err


@pytest.mark.case("S07")
@pytest.mark.parametrize("context", CONTEXTS)
def test_two_programs_with_a_manager_each_are_strangers(script, context):
    body = """
    manager = make(many(envs.CounterEnv, 2, log=log))
    manager.launch()
    while len(manager.ready_obs) < 2:
        pass
    log.add("ready")
    go = HERE.parent / "go"
    while not go.exists():
        result = manager.step({0: 0, 1: 0})
    t = int(result[0].obs[2])
    assert manager.steps == [t, t]
    manager.close()
    """
    first, second = (script(body, "subprocess", context) for _ in range(2))
    for one in (first, second):
        one.log.wait("ready", deadline=30)
    family = first.family()
    first.signal(signal.SIGKILL)
    first.wait(5)
    wait_gone(family, 5)
    Path(second.here.parent / "go").touch()
    assert second.wait(20) == 0
    assert second.err == "" and first.err == ""
