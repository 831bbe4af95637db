"""The parent dies, is interrupted, or simply ends: its workers go, quietly."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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


@pytest.mark.case("F05")
@pytest.mark.parametrize("kind", ["subprocess", "async_subprocess"])
@pytest.mark.parametrize(("context", "epw"), [("fork", 1), ("spawn", 8), ("forkserver", 8)])
def test_ctrl_c_gives_one_traceback_in_the_parent(script, kind, context, epw):
    one = script(STEPPING.format(epw=epw), kind, context)
    one.log.wait("stepping", deadline=40)
    family = one.family()
    assert len(family) >= 32 // epw
    one.signal(signal.SIGINT, group=True)
    code = one.wait(5)
    wait_gone(family, 5.0)
    assert code in (-signal.SIGINT, 1, 130)
    assert one.err.count("Traceback (most recent call last)") == 1, one.err
    assert one.err.strip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in one.err and "Error in atexit" not in one.err


@pytest.mark.case("F05")
def test_ctrl_c_while_an_env_is_stuck(script, signal_at):
    one = script(STUCK.format(fault="stubborn"), "subprocess", "fork")
    signal_at(one.here / "before").wait(3, 40)
    family = one.family()
    one.signal(signal.SIGINT, group=True)
    one.wait(8)
    wait_gone(family, 5.0)
    assert one.err.count("Traceback (most recent call last)") == 1, one.err


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
    wait_until(lambda: one.family(), "the first worker", 20)
    family = one.family()
    one.signal(signal.SIGINT, group=True)
    one.wait(8)
    wait_gone(family, 5.0)
    assert one.err.count("Traceback (most recent call last)") <= 1, one.err
    assert "KeyboardInterrupt" in one.err


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
import logging

logging.getLogger("envmgr").addHandler(logging.NullHandler())  # that a worker was killed may be told there
manager = make(many(envs.CounterEnv, 3, log=log))
manager.launch()
while len(manager.ready_obs) < 3:
    pass
manager.reset_arrays()
{}
"""

ENDINGS = {
    "no close": "",
    "close": "manager.close()",
    "close twice": "manager.close(); manager.close()",
    "del": "del manager; gc.collect()",
    "del after a worker was killed": (
        "os.kill(manager.where_pid[1], signal.SIGKILL)\ndel manager\ngc.collect()"
    ),
    "no close after a worker was killed": "os.kill(manager.where_pid[1], signal.SIGKILL)",
    "close after a worker was killed": "os.kill(manager.where_pid[1], signal.SIGKILL)\nmanager.close()",
    "no close with steps pending": "manager.send([0, 0, 0])",
    "sys.exit": "sys.exit(0)",
    "a fork that ends by itself": (
        "child = os.fork()\nif child == 0:\n    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\nmanager.close()"
    ),
    "in a reference cycle": "box = [manager]\nbox.append(box)\ndel manager",
}


@pytest.mark.case("F07", "S01")
@pytest.mark.parametrize("ending", ENDINGS)
def test_ending_a_program_under_fork(script, ending):
    one = script(ENDING.format(ENDINGS[ending]), "subprocess", "fork")
    assert one.wait(20) == 0
    assert one.err == ""


@pytest.mark.case("F07", "S01")
@pytest.mark.parametrize("ending", ["no close", "close twice", "del after a worker was killed"])
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_ending_a_program_under_other_start_methods(script, ending, context):
    one = script(ENDING.format(ENDINGS[ending]), "async_subprocess", context)
    assert one.wait(30) == 0
    assert one.err == ""


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
    one = script(ENDING.format('raise ValueError("mine")'), "subprocess", "fork")
    assert one.wait(20) == 1
    assert one.err.count("Traceback") == 1 and one.err.strip().endswith("ValueError: mine")
    one.log.wait("close", 3, 5)


@pytest.mark.case("F09", "F07")
@pytest.mark.parametrize("context", CONTEXTS)
def test_at_interpreter_exit_each_envs_close_is_called(script, context):
    one = script(ENDING.format(""), "subprocess", context)
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
def test_two_programs_with_a_manager_each_are_strangers(script):
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
    first, second = script(body, "subprocess", "fork"), script(body, "subprocess", "fork")
    for one in (first, second):
        one.log.wait("ready", deadline=30)
    family = first.family()
    first.signal(signal.SIGKILL)
    first.wait(5)
    wait_gone(family, 5)
    Path(second.here.parent / "go").touch()
    assert second.wait(20) == 0
    assert second.err == "" and first.err == ""
