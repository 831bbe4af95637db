"""An env that fails in a step: it raises, it ends its process, it dies while nobody steps it."""

from __future__ import annotations

import inspect
import os
import signal
import threading
import time
from functools import partial

import numpy as np
import psutil
import pytest

from envmgr import EnvStepError, WorkerDied
from envmgr.engine.replies import Replies
from tests.helpers import envs
from tests.helpers.managers import (
    CONTEXTS,
    Sent,
    actions_for,
    in_async,
    in_base,
    in_base_and_sync,
    in_every_process_kind,
    in_processes,
    in_start_methods,
    in_sync,
    kinds,
    many,
    state_of,
    step_until,
    wait_ready,
)
from tests.helpers.scripts import wait_gone
from tests.helpers.sync import Background, Log, wait_until, within

DEATHS = {
    "exit": (7, None),
    "exit0": (0, None),
    "sigkill": (-signal.SIGKILL, "SIGKILL"),
    "sigsegv": (-signal.SIGSEGV, "SIGSEGV"),
}


def one_faulty(kind, n=3, who=1, at_step=2, **kwargs):
    """``n`` counters of which one fails in its second step."""
    fns = many(envs.CounterEnv, n)
    fns[who] = partial(envs.FaultyEnv, who, step_fault=kind, at_step=at_step, **kwargs)
    return fns


def told_by(obs):
    """The numbers in an observation: one, where it is whole."""
    leaves = obs.values() if isinstance(obs, dict) else [obs]
    return {float(number) for leaf in leaves for number in np.unique(leaf)}


def gone(pids):
    wait_until(lambda: not any(psutil.pid_exists(p) for p in pids), f"workers {pids} to be gone", 5)


def kill(processes):
    """Kills and waits until they have ended."""
    for process in processes:
        process.kill()
    wait_gone(processes)


IN_MAIN = """
class MyEnv(envs.CounterEnv):
    def step(self, action):
        return self.deep()

    def deep(self):
        raise ValueError("deep in the script")


if __name__ == "__main__":
    if {threads}:
        import threading

        threading.Thread(target=threading.Event().wait, daemon=True).start()
    with make([partial(MyEnv, 0)]) as manager:
        manager.launch()
        try:
            manager.step({{0: 0}})
        except RuntimeError as error:
            print(error)
"""


@pytest.mark.case("F02", "F19")
class TestRaises:
    @pytest.mark.parametrize("kind", ["raise", "system_exit"])
    def test_the_error_is_an_env_step_error(self, make, kind):
        manager = make.launched(one_faulty(kind))
        manager.step(actions_for(range(3)))
        with pytest.raises(EnvStepError) as caught:
            manager.step(actions_for(range(3)))
        assert caught.value.env_id == 1
        assert "1" in str(caught.value)
        if make.is_base:
            assert not manager.closed and state_of(manager, 1) == "ERROR"
        else:
            assert manager.closed

    @pytest.mark.case("F02")
    def test_the_message_names_the_users_file_function_and_line(self, make):
        manager = make.launched(one_faulty("raise"))
        manager.step({1: 0})
        with pytest.raises(EnvStepError) as caught:
            manager.step({1: 0})
        text = str(caught.value)
        line = inspect.getsourcelines(envs.raise_boom)[1] + 2
        assert f'{envs.__file__}", line {line}, in raise_boom' in text
        assert "in do_fault" in text and "boom in user code" in text
        assert isinstance(caught.value.__cause__, envs.Boom)
        assert caught.value.__cause__.args == ("boom in user code",)

    @pytest.mark.parametrize("threads", [False, True])
    @pytest.mark.parametrize("context", CONTEXTS)
    def test_the_line_of_an_env_that_is_defined_in_the_script(self, script, context, threads):
        """Its code is carried by value to a process that is no fork."""
        one = script(IN_MAIN.format(threads=threads), "subprocess", context, guard=False)
        assert one.wait() == 0, one.err
        path = one.here / "script.py"
        line = path.read_text().splitlines().index('        raise ValueError("deep in the script")') + 1
        assert f'File "{path}", line {line}, in deep' in one.out
        assert 'raise ValueError("deep in the script")' in one.out

    @in_processes
    def test_keyboard_interrupt_in_a_worker_is_an_env_error(self, make):
        manager = make.launched(one_faulty("keyboard_interrupt"))
        manager.step({1: 0})
        with pytest.raises(EnvStepError, match="KeyboardInterrupt") as caught:
            manager.step({1: 0})
        assert caught.value.env_id == 1

    @in_start_methods
    def test_when_it_raises_everything_is_closed_and_can_be_launched_again(self, make):
        manager = make.launched(one_faulty("raise"))
        pids = manager.where_pid
        manager.step({1: 0})
        with pytest.raises(EnvStepError):
            manager.step(actions_for(range(3)))
        assert manager.closed
        gone(pids)
        manager.launch()
        wait_ready(manager)
        assert manager.step({1: 0})[1].obs.tolist() == [1, 0, 1]

    @in_base
    def test_base_stays_open_and_no_step_of_another_env_is_lost(self, make):
        manager = make.launched(one_faulty("raise"))
        manager.step(actions_for(range(3)))
        with pytest.raises(EnvStepError):
            manager.step(actions_for(range(3)))
        t = {0: 1, 2: 1}
        for i, ts in manager.step({}).items():
            t[i] += 1
            assert ts.obs.tolist() == [i, 0, t[i]]
        assert [manager.steps[i] for i in (0, 2)] == [t[0], t[2]], "each step taken was handed over"
        result = manager.step({0: 0, 2: 0})
        assert {i: ts.obs.tolist() for i, ts in result.items()} == {i: [i, 0, t[i] + 1] for i in (0, 2)}
        manager.reset({1: {}})
        assert wait_ready(manager)[1].tolist() == [1, 1, 0]

    @pytest.mark.parametrize("kind", ["raise", "system_exit"])
    def test_with_reset_there_is_exactly_one_abnormal_timestep(self, make, kind, tmp_path):
        log = Log(tmp_path / "log")
        manager = make.launched(one_faulty(kind, log=log), on_error="reset")
        pids = manager.where_pid
        manager.step(actions_for(range(3)))
        result = step_until(manager, actions_for(range(3)))
        assert {i: result[i].obs.tolist() for i in (0, 2)} == {0: [0, 0, 2], 2: [2, 0, 2]}
        ts = result[1]
        assert ts.obs.tolist() == [1, 0, 1], "the last good observation"
        assert float(ts.reward) == 0.0 and ts.done and ts.truncated and not ts.terminated
        assert ts.info["abnormal"] is True
        assert isinstance(ts.info["err"], EnvStepError) and ts.info["err"].env_id == 1
        if kind == "raise":
            assert isinstance(ts.info["err"].__cause__, envs.Boom)
        assert wait_ready(manager)[1].tolist() == [1, 1, 0]
        assert step_until(manager, {1: 0})[1].obs.tolist() == [1, 1, 1]
        assert manager.where_pid == pids, "the worker did nothing wrong"
        assert len(log.lines("init")) == 1
        assert len(log.lines("fault")) == 1, "never stepped again with the same action"

    def test_with_retry_step_it_is_stepped_again(self, make, tmp_path):
        manager = make.launched(
            one_faulty("raise", once=str(tmp_path / "once")), retry_step=True, max_retry=3
        )
        manager.step(actions_for(range(3)))
        result = step_until(manager, actions_for(range(3)))
        assert {i: ts.obs.tolist() for i, ts in result.items()} == {i: [i, 0, 2] for i in range(3)}
        assert not result[1].info.get("abnormal", False)

    def test_a_step_that_is_tried_again_is_a_warning_with_its_traceback(self, make, caplog):
        manager = make.launched(
            one_faulty("raise", at_step=1),
            retry_step=True,
            max_retry=3,
            retry_waiting_time=0.01,
            on_error="reset",
        )
        assert step_until(manager, {1: 5})[1].info["abnormal"]
        said = [r.getMessage() for r in caplog.records if "is tried again" in r.getMessage()]
        for k, text in enumerate(said, 1):
            first = f"env 1: step, attempt {k} of 3, is tried again: env 1 raised in step with action 5: Boom"
            assert text.startswith(first) and "raise_boom" in text
        assert len(said) == 2
        row = manager.stats()[1]
        assert (row["failures"], row["retries"], row["steps"]) == (3, 2, 1)

    def test_with_retry_step_and_no_luck_it_gives_up(self, make, tmp_path):
        log = Log(tmp_path / "log")
        fns = one_faulty("raise", log=log)
        manager = make.launched(fns, retry_step=True, max_retry=3, retry_waiting_time=0.01)
        manager.step({1: 0})
        with pytest.raises(EnvStepError) as caught:
            step_until(manager, {1: 0})
        assert isinstance(caught.value.__cause__, envs.Boom)
        assert len(log.lines("fault")) == 3
        assert "the first cause, after 3 attempts" in str(caught.value)

    def test_in_the_array_face(self, make):
        manager = make(one_faulty("raise"), on_error="reset")
        manager.launch()
        manager.reset_arrays()
        manager.step_arrays([0, 0, 0])
        out = manager.step_arrays([0, 0, 0])
        rows = {int(i): k for k, i in enumerate(out.env_id)}
        k = rows[1]
        assert out.obs[k].tolist() == [1, 1, 0]
        assert out.final_obs[1].tolist() == [1, 0, 1]
        assert out.reward[k] == 0.0 and out.truncated[k] and not out.terminated[k]
        assert out.info[1]["abnormal"] is True and isinstance(out.info[1]["err"], EnvStepError)
        assert out.obs[rows[0]].tolist() == [0, 0, 2]


@pytest.mark.case("F03")
class TestDies:
    @pytest.mark.parametrize("kind", DEATHS)
    @in_every_process_kind
    def test_worker_died_with_pid_and_exit_code_or_signal(self, make, kind):
        manager = make.launched(one_faulty(kind))
        pids = manager.where_pid
        manager.step(actions_for(range(3)))
        with pytest.raises(WorkerDied) as caught:
            within(20, manager.step, actions_for(range(3)))
        error = caught.value
        exitcode, signal_name = DEATHS[kind]
        assert (error.env_id, error.pid) == (1, pids[1])
        assert (error.exitcode, error.signal_name) == (exitcode, signal_name)
        assert str(pids[1]) in str(error) and (signal_name or str(exitcode)) in str(error)
        assert manager.closed
        gone(pids)

    @pytest.mark.parametrize("kind", ["exit", "sigkill", "sigsegv"])
    @in_start_methods
    def test_or_renewed_with_one_abnormal_timestep(self, make, kind, tmp_path):
        log = Log(tmp_path / "log")
        manager = make.launched(one_faulty(kind, log=log), on_error="reset")
        pids = manager.where_pid
        manager.step(actions_for(range(3)))
        result = step_until(manager, actions_for(range(3)))
        assert {i: result[i].obs.tolist() for i in (0, 2)} == {0: [0, 0, 2], 2: [2, 0, 2]}
        ts = result[1]
        assert ts.obs.tolist() == [1, 0, 1] and float(ts.reward) == 0.0 and ts.done and ts.truncated
        assert ts.info["abnormal"] is True and isinstance(ts.info["err"], WorkerDied)
        assert ts.info["err"].pid == pids[1]
        assert wait_ready(manager)[1].tolist() == [1, 0, 0]
        assert step_until(manager, {1: 0})[1].obs.tolist() == [1, 0, 1]
        now = manager.where_pid
        assert now[1] != pids[1] and (now[0], now[2]) == (pids[0], pids[2])
        assert len(log.lines("init")) == 2
        assert manager.stats()[1]["renewals"] == 1 and manager.stats()[0]["renewals"] == 0

    @in_processes
    def test_a_worker_with_several_envs_renews_all_and_says_which(self, make):
        manager = make.launched(one_faulty("exit", n=4), on_error="reset", envs_per_worker=2)
        pids = manager.where_pid
        step_until(manager, actions_for(range(4)))
        result = step_until(manager, actions_for(range(4)))
        error = result[1].info["err"]
        assert isinstance(error, WorkerDied) and sorted(error.env_ids) == [0, 1]
        assert {i: result[i].obs.tolist() for i in (2, 3)} == {i: [i, 0, 2] for i in (2, 3)}
        hit = [i for i in (0, 1) if result[i].info.get("abnormal", False)]
        assert 1 in hit
        if 0 not in hit:  # its step was whole before its neighbour died; then it is told at its next one
            assert result[0].obs.tolist() == [0, 0, 2]
            result = step_until(manager, {0: 0})
            assert result[0].info["abnormal"] is True and result[0].obs.tolist() == [0, 0, 2]
        obs = wait_ready(manager)
        assert obs[0].tolist() == [0, 0, 0] and obs[1].tolist() == [1, 0, 0]
        assert obs[2].tolist() == [2, 0, 2] and obs[3].tolist() == [3, 0, 2]
        now = manager.where_pid
        assert now[0] == now[1] != pids[0] and now[2] == now[3] == pids[2]

    @pytest.mark.parametrize("who", [0, 1, 2])
    @in_start_methods
    def test_in_a_worker_with_several_envs_the_one_that_ran_is_blamed(self, make, who):
        manager = make.launched(one_faulty("exit", who=who), envs_per_worker=3)
        step_until(manager, actions_for(range(3)))
        with pytest.raises(WorkerDied, match=f"env {who}: its worker died in step") as caught:
            step_until(manager, actions_for(range(3)))
        assert caught.value.env_id == who
        assert caught.value.env_ids == (0, 1, 2)

    @in_processes
    def test_so_it_is_when_its_worker_has_to_be_renewed_once_too_often(self, make):
        fns = one_faulty("exit", at_step=1)
        manager = make.launched(fns, envs_per_worker=3, on_error="reset", max_renewals=0)

        def step_and_wait():
            step_until(manager, actions_for(range(3)))
            wait_ready(manager)

        with pytest.raises(WorkerDied, match="env 1: its worker died in step") as caught:
            step_and_wait()
        assert caught.value.env_id == 1

    @in_processes
    def test_a_neighbour_that_was_not_stepping_answers_its_next_step(self, make):
        manager = make.launched(one_faulty("exit", n=2, at_step=1), on_error="reset", envs_per_worker=2)
        first = step_until(manager, {1: 0})[1]
        assert isinstance(first.info["err"], WorkerDied)
        wait_ready(manager, [1])
        second = step_until(manager, {0: 0})[0]
        assert second.info["abnormal"] is True and isinstance(second.info["err"], WorkerDied)
        assert second.obs.tolist() == [0, 0, 0] and second.done and second.truncated
        assert wait_ready(manager)[0].tolist() == [0, 0, 0]
        assert step_until(manager, {0: 0})[0].obs.tolist() == [0, 0, 1]

    @pytest.mark.case("O02")
    @in_start_methods
    def test_killed_from_outside_while_idle(self, make):
        manager = make.launched(many(envs.CounterEnv, 4), step_timeout=None)
        pids = manager.where_pid
        manager.step(actions_for(range(4)))
        psutil.Process(pids[0]).kill()
        with pytest.raises(WorkerDied) as caught:
            within(20, manager.step, actions_for(range(4)))
        assert (caught.value.env_id, caught.value.pid, caught.value.signal_name) == (0, pids[0], "SIGKILL")

    @in_processes
    def test_killed_from_outside_while_idle_with_reset(self, make):
        manager = make.launched(many(envs.CounterEnv, 3), on_error="reset")
        step_until(manager, actions_for(range(3)))
        psutil.Process(manager.where_pid[1]).kill()
        result = step_until(manager, actions_for(range(3)))
        assert result[1].info["abnormal"] is True and result[1].obs.tolist() == [1, 0, 1]
        assert [result[i].obs.tolist() for i in (0, 2)] == [[0, 0, 2], [2, 0, 2]]
        assert wait_ready(manager)[1].tolist() == [1, 0, 0]
        result = step_until(manager, actions_for(range(3)))
        assert [result[i].obs.tolist()[2] for i in range(3)] == [3, 1, 3]

    @pytest.mark.case("O02")
    @in_start_methods
    def test_killed_from_outside_while_stepping_without_any_timeout(self, make, signals):
        manager = make.launched(
            many(envs.CounterEnv, 3, gate=signals("gate"), entered=signals("entered")), step_timeout=None
        )
        pids = manager.where_pid
        call = Background(manager.step, actions_for(range(3)))
        signals("entered").wait(3)
        os.kill(pids[0], signal.SIGKILL)  # the oldest, whose ends its siblings may have inherited
        with pytest.raises(WorkerDied) as caught:
            call.result(20)
        assert (caught.value.env_id, caught.value.pid) == (0, pids[0])

    @in_async
    def test_the_others_go_on_while_one_is_renewed(self, make, signals):
        fns = many(envs.CounterEnv, 2)
        fns[1] = partial(envs.FaultyEnv, 1, step_fault="exit", at_step=1)
        manager = make.launched(fns, on_error="reset", wait_num=1, step_wait_timeout=0)
        seen, abnormal = 0, 0

        def two_deaths():
            nonlocal seen, abnormal
            for i, ts in manager.step(actions_for(manager.ready_obs)).items():
                if i == 0:
                    seen += 1
                    assert ts.obs.tolist() == [0, 0, seen]
                else:
                    abnormal += 1
                    assert ts.info["abnormal"] is True
            return abnormal >= 2

        wait_until(two_deaths, "two deaths and the renewal between them")
        assert seen >= 2

    @in_processes
    def test_in_the_array_face(self, make):
        manager = make(one_faulty("exit"), on_error="reset")
        manager.launch()
        manager.reset_arrays()
        manager.step_arrays([0, 0, 0])
        out = manager.step_arrays([0, 0, 0])
        rows = {int(i): k for k, i in enumerate(out.env_id)}
        k = rows[1]
        assert out.obs[k].tolist() == [1, 0, 0] and out.final_obs[1].tolist() == [1, 0, 1]
        assert out.truncated[k] and out.reward[k] == 0.0
        assert isinstance(out.info[1]["err"], WorkerDied)
        assert out.obs[rows[2]].tolist() == [2, 0, 2]

    @in_processes
    def test_the_params_survive_the_renewal_and_the_seed_goes_on(self, make, tmp_path):
        manager = make(one_faulty("exit", once=str(tmp_path / "once")), on_error="reset")
        manager.seed(100)
        manager.launch({i: {"start": 10 * i} for i in range(3)})
        wait_ready(manager)
        assert [s[0] for s in manager.seeds] == [100, 101, 102]
        step_until(manager, {1: 0})
        assert step_until(manager, {1: 0})[1].info["abnormal"]
        assert wait_ready(manager)[1].tolist() == [1, 0, 10]
        seeds = manager.seeds
        assert seeds[0] == [100] and seeds[2] == [102]
        assert len(seeds[1]) == 1 and isinstance(seeds[1][0], int) and seeds[1][0] not in (100, 101, 102)

    @pytest.mark.case("O15")
    @in_start_methods
    def test_killed_in_the_middle_of_writing_its_row(self, make, tmp_path):
        fns = many(envs.HalfWrittenEnv, 2, once=str(tmp_path / "once"))
        manager = make.launched(fns, on_error="reset")
        t = {0: 0, 1: 0}
        abnormal = 0
        for _ in range(12):
            wait_ready(manager)
            for i, ts in step_until(manager, {0: 0, 1: 0}).items():
                assert all((ts.obs[k] == ts.obs["a"][0]).all() for k in "abc"), "whole, old or new"
                if ts.info.get("abnormal", False):
                    abnormal += 1
                    assert ts.obs["a"][0] == 100 * i + t[i]
                    t[i] = 0
                else:
                    t[i] += 1
                    assert ts.obs["a"][0] == 100 * i + t[i]
        assert abnormal == 1

    @pytest.mark.case("O15")
    @pytest.mark.parametrize("workers", [3, 1])
    @pytest.mark.parametrize(
        ("leaf", "info"), [(False, False), (True, False), (False, True)], ids=["box", "dict", "with an info"]
    )
    @kinds("subprocess-fork", "async_subprocess-spawn")
    def test_a_row_that_is_half_written_is_never_shown(
        self, make, workers, leaf, info, tmp_path, monkeypatch
    ):
        """Its worker dies of SIGBUS inside numpy's copy; siblings of that worker lose at most this step."""
        was_torn, give_abnormal = [], Replies.give_abnormal

        def look(replies, i, cause):
            was_torn.append((i, max(len(np.unique(rows[i])) for rows in replies._core.arena.obs) > 1))
            give_abnormal(replies, i, cause)

        monkeypatch.setattr(Replies, "give_abnormal", look)
        fns = many(envs.TornEnv, 3, leaf=leaf, info=info)
        fns[1] = partial(envs.TornEnv, 1, torn=str(tmp_path / "torn"), leaf=leaf, info=info)
        manager = make.launched(fns, on_error="reset", num_workers=workers)
        pid = manager.where_pid[1]
        t, abnormal = dict.fromkeys(range(3), 0), []
        for _ in range(6):
            obs = wait_ready(manager)
            assert {i: told_by(obs[i]) for i in obs} == {i: {100 * i + t[i] + 1} for i in range(3)}
            for i, ts in step_until(manager, actions_for(range(3))).items():
                if ts.info.get("abnormal", False):
                    abnormal.append(i)
                    assert told_by(ts.obs) in ({0}, {100 * i + t[i] + 1}), "the last good one, or zeros"
                    assert float(ts.reward) == 0.0 and ts.done and ts.truncated
                    error = ts.info["err"]
                    assert isinstance(error, WorkerDied) and (error.env_id, error.pid) == (i, pid)
                    assert (error.signal_name, error.exitcode) == ("SIGBUS", -signal.SIGBUS)
                    t[i] = 0
                else:
                    t[i] += 1
                    assert told_by(ts.obs) == {100 * i + t[i] + 1} and float(ts.reward) == t[i]
        assert sorted(abnormal) == ([0, 1, 2] if workers == 1 else [1]), "each once"
        assert [torn for i, torn in was_torn if i == 1] == [True], "or nothing was tried here"
        assert [manager.stats()[i]["renewals"] for i in range(3)] == ([1] * 3 if workers == 1 else [0, 1, 0])

    @pytest.mark.case("O15")
    @pytest.mark.parametrize("info", [False, True], ids=["", "with an info"])
    @kinds("subprocess-fork", "async_subprocess-spawn")
    def test_the_one_whose_row_is_half_written_is_blamed(self, make, info, tmp_path):
        fns = many(envs.TornEnv, 3)
        fns[1] = partial(envs.TornEnv, 1, torn=str(tmp_path / "torn"), info=info)
        manager = make.launched(fns, num_workers=1)
        pid = manager.where_pid[1]
        for _ in range(2):
            step_until(manager, actions_for(range(3)))
        with pytest.raises(WorkerDied, match="env 1: its worker died in step") as caught:
            within(20, step_until, manager, actions_for(range(3)))
        error = caught.value
        assert (error.env_id, error.pid, error.signal_name) == (1, pid, "SIGBUS")
        assert error.env_ids == (0, 1, 2) and manager.closed


in_both = kinds("subprocess-fork", "async_subprocess-spawn")

CALLS = {
    "get_env_attr": lambda manager: manager.get_env_attr("t"),
    "attribute": lambda manager: manager.length,
    "set_env_attr": lambda manager: manager.set_env_attr("extra", [1, 2, 3]),
    "call_env_method": lambda manager: manager.call_env_method("enable_save_replay", "there"),
    "enable_save_replay": lambda manager: manager.enable_save_replay("here"),
}


@pytest.mark.case("F03")
class TestDeadWhenSomethingIsSentToIt:
    """A message to a worker that has died a moment ago, of which nobody has heard yet."""

    def about_to_die(self, manager):
        """Kills worker 0, the oldest, just before a message is sent to it; its pid, and what was sent."""
        pid = manager.where_pid[0]

        def die(worker):
            if worker == 0 and not sent.workers.count(0):
                kill([psutil.Process(pid)])

        sent = Sent(manager, before=die)
        return pid, sent

    def killed(self, error, pid):
        assert isinstance(error, WorkerDied), repr(error)
        assert (error.env_id, error.pid, error.signal_name) == (0, pid, "SIGKILL")
        assert str(pid) in str(error) and "SIGKILL" in str(error)

    @in_both
    def test_a_call(self, make):
        manager = make.launched(many(envs.TimestepEnv, 3, length=1000), on_error="reset")
        for t, (name, call) in enumerate(CALLS.items(), 1):
            pid, sent = self.about_to_die(manager)
            with pytest.raises(WorkerDied) as caught:
                within(20, call, manager)
            sent.stop()
            assert 0 in sent.workers, name
            self.killed(caught.value, pid)
            result = step_until(manager, actions_for(range(3)))
            assert result[0].info["abnormal"] is True
            self.killed(result[0].info["err"], pid)
            assert [result[i].obs.tolist() for i in (1, 2)] == [[1, t], [2, t]]
            assert wait_ready(manager)[0].tolist() == [0, 0]
            assert manager.where_pid[0] != pid

    @in_both
    def test_reset_params(self, make):
        manager = make.launched(many(envs.CounterEnv, 3))
        manager.seed([50, 60, 70])
        pid, sent = self.about_to_die(manager)
        within(40, manager.reset, [{"start": 5}, {"start": 6}, None])
        assert sent.workers == [0, 1, 0], "once more to the next one"
        sent.stop()
        assert [o.tolist() for o in manager.ready_obs.values()] == [[0, 0, 5], [1, 1, 6], [2, 1, 0]]
        (seed,), *others = manager.seeds
        assert isinstance(seed, int) and seed != 50, "a renewed env has a seed of its own"
        assert others == [[None, 60], [None, 70]]
        assert manager.where_pid[0] != pid
        assert [row["renewals"] for row in manager.stats().values()] == [1, 0, 0]
        assert step_until(manager, {0: 0})[0].obs.tolist() == [0, 0, 6]

    @in_sync
    def test_seeds(self, make):
        manager = make.launched(many(envs.CounterEnv, 3))
        process = psutil.Process(manager.where_pid[0])
        kill([process])
        within(10, manager.seed, [50, 60, 70])
        within(40, manager.reset)
        assert manager.where_pid[0] != process.pid
        (seed,), *others = manager.seeds
        assert isinstance(seed, int) and others == [[None, 60], [None, 70]]
        assert [o.tolist() for o in manager.ready_obs.values()] == [[0, 0, 0], [1, 1, 0], [2, 1, 0]]

    @in_both
    def test_an_action_that_has_no_row(self, make):
        manager = make.launched(many(envs.FreeFormWhereEnv, 3), on_error="reset")
        pid, sent = self.about_to_die(manager)
        result = within(20, step_until, manager, {i: f"to {i}" for i in range(3)})
        assert 0 in sent.workers
        sent.stop()
        assert result[0].info["abnormal"] is True
        self.killed(result[0].info["err"], pid)
        assert [result[i].obs["got"] for i in (1, 2)] == ["to 1", "to 2"]
        wait_ready(manager)
        result = step_until(manager, {i: f"to {i}" for i in range(3)})
        assert [result[i].obs["got"] for i in range(3)] == ["to 0", "to 1", "to 2"]

    @in_both
    def test_an_action_that_has_no_row_with_an_error(self, make):
        manager = make.launched(many(envs.FreeFormWhereEnv, 3))
        pid, sent = self.about_to_die(manager)
        with pytest.raises(WorkerDied) as caught:
            within(20, manager.step, {i: f"to {i}" for i in range(3)})
        assert 0 in sent.workers
        self.killed(caught.value, pid)
        assert manager.closed

    @in_both
    def test_in_the_middle_of_a_long_action(self, make):
        manager = make.launched(many(envs.FreeFormWhereEnv, 3), on_error="reset")
        process = psutil.Process(manager.where_pid[0])
        process.suspend()
        call = Background(step_until, manager, {0: bytes(5_000_000), 1: "to 1"})
        wait_until(lambda: 0 in manager._engine.pool.sending, "the action to be stuck")
        process.kill()
        result = call.result(20)
        self.killed(result[0].info["err"], process.pid)
        assert result[1].obs["got"] == "to 1"
        wait_ready(manager)
        assert step_until(manager, {0: "again"})[0].obs["got"] == "again"


@pytest.mark.case("F14")
class TestBudget:
    @in_start_methods
    def test_renewals_are_bounded_and_the_end_has_the_first_cause(self, make, tmp_path):
        log = Log(tmp_path / "log")
        fns = [partial(envs.CounterEnv, 0), partial(envs.FaultyEnv, 1, step_fault="exit", at_step=1, log=log)]
        manager = make.launched(fns, on_error="reset", max_renewals=2, renewal_window=300)
        t, abnormal = 0, 0

        def until_it_is_over():
            nonlocal t, abnormal
            for _ in range(50):
                wait_ready(manager)
                result = step_until(manager, {0: 0, 1: 0})
                t += 1
                assert result[0].obs.tolist() == [0, 0, t], "the other env's data are whole"
                abnormal += bool(result[1].info.get("abnormal", False))

        with pytest.raises(WorkerDied, match="max_renewals") as caught:
            until_it_is_over()
        assert caught.value.env_id == 1
        assert abnormal >= 2
        pids = [words[2] for words in log.lines("init")]
        assert len(pids) == 3, "the first and two renewals"
        told, error = "", caught.value
        while error is not None:
            told, error = told + str(error), error.__cause__
        assert pids[0] in told, "the first cause"
        assert manager.closed

    @in_processes
    def test_what_was_renewed_is_what_was_counted(self, make):
        manager = make.launched(one_faulty("exit", at_step=1), on_error="reset", max_renewals=2)

        def until_it_is_over():
            for _ in range(10):
                step_until(manager, {1: 0})
                wait_ready(manager)

        with pytest.raises(WorkerDied, match=r"died in step.* the 3rd renewal within renewal_window"):
            until_it_is_over()
        assert manager.stats()[1]["failures"] == 3

    def test_steps_that_fail_in_a_row_are_bounded_and_the_end_has_the_first_cause(self, make, tmp_path):
        log = Log(tmp_path / "log")
        manager = make.launched(one_faulty("raise", at_step=1, log=log), on_error="reset", max_retry=3)
        t, abnormal = 0, 0

        def until_it_is_over():
            nonlocal t, abnormal
            for _ in range(50):
                wait_ready(manager)
                result = step_until(manager, actions_for(range(3)))
                t += 1
                assert [result[i].obs.tolist() for i in (0, 2)] == [[0, 0, t], [2, 0, t]], "they are whole"
                assert isinstance(result[1].info["err"].__cause__, envs.Boom)
                abnormal += bool(result[1].info["abnormal"])

        told = "boom in user code.*the first cause; 4 failures in a row without one good step.*max_retry=3"
        with pytest.raises(EnvStepError, match=told) as caught:
            until_it_is_over()
        assert caught.value.env_id == 1
        assert isinstance(caught.value.__cause__, envs.Boom)
        assert (t, abnormal, len(log.lines("fault"))) == (3, 3, 4)
        assert manager.closed
        assert manager.stats()[1]["failures"] == 4

    @in_base_and_sync
    def test_a_good_step_between_ends_the_row(self, make):
        manager = make.launched(one_faulty("raise", n=2), on_error="reset", max_retry=1)
        for t in range(1, 7):
            good, bad = (step_until(manager, actions_for(range(2))) for _ in range(2))
            assert not good[1].info.get("abnormal", False) and bad[1].info["abnormal"] is True
            assert [good[0].obs.tolist(), bad[0].obs.tolist()] == [[0, 0, 2 * t - 1], [0, 0, 2 * t]]
            assert wait_ready(manager)[1].tolist() == [1, t, 0]

    @in_sync
    def test_renewals_longer_ago_than_the_window_do_not_count(self, make):
        window = 0.3
        manager = make.launched(
            one_faulty("exit", n=2, at_step=1), on_error="reset", max_renewals=1, renewal_window=window
        )
        for k in range(1, 4):
            assert isinstance(step_until(manager, {1: 0})[1].info["err"], WorkerDied)
            died = time.monotonic()
            wait_ready(manager)
            assert manager.stats()[1]["renewals"] == k
            wait_until(lambda died=died: time.monotonic() - died > window, "the window to pass")

    @in_sync
    def test_no_renewal_at_all(self, make):
        manager = make.launched(one_faulty("exit", at_step=1), on_error="reset", max_renewals=0)

        def step_and_wait():
            step_until(manager, {1: 0})
            wait_ready(manager)

        with pytest.raises(WorkerDied):
            step_and_wait()
        assert manager.closed


@pytest.mark.case("F17")
class TestRenewalsComeFromACleanProcess:
    @pytest.mark.parametrize("context", CONTEXTS)
    def test_a_lock_that_a_thread_of_the_parent_holds(self, context, tmp_path):
        """A renewal that forked this process would inherit the lock, held by a thread that it has not."""
        from envmgr import create_env_manager
        from tests.helpers import locked

        fns = [partial(envs.FaultyLockTakingEnv, 0, step_fault="exit", once=str(tmp_path / "once"))]
        cfg = {"type": "subprocess", "context": context, "on_error": "reset", "reset_timeout": 20}
        with create_env_manager(cfg, fns) as manager:
            manager.launch()
            wait_ready(manager)
            holding, release = threading.Event(), threading.Event()

            def hold():
                with locked.LOCK:
                    holding.set()
                    release.wait(60)

            holder = Background(hold)
            try:
                assert holding.wait(10)
                assert manager.step({0: 0})[0].info["abnormal"]
                wait_ready(manager, deadline=15)
                assert manager.step({0: 0})[0].obs.tolist() == [0, 0, 1]
                row = manager.stats()[0]
                assert [row[what] for what in ("timeouts", "retries", "renewals", "failures")] == [0, 0, 1, 1]
            finally:
                release.set()
                holder.result()

    @in_processes
    def test_closures_can_be_renewed(self, make, tmp_path):
        once = str(tmp_path / "once")
        manager = make.launched(
            [lambda: envs.FaultyEnv(5, step_fault="exit", once=once, at_step=1)], on_error="reset"
        )
        assert step_until(manager, {0: 0})[0].info["abnormal"]
        assert wait_ready(manager)[0].tolist() == [5, 0, 0]

    @in_processes
    def test_so_can_env_fns_that_do_not_pickle(self, make, tmp_path):
        """Fork takes any env_fn, so a renewal has to."""
        lock = threading.Lock()
        once = str(tmp_path / "once")

        def build():
            with lock:
                return envs.FaultyEnv(0, step_fault="exit", once=once, at_step=1)

        manager = make.launched([build], on_error="reset")
        assert step_until(manager, {0: 0})[0].info["abnormal"]
        assert wait_ready(manager)[0].tolist() == [0, 0, 0]
