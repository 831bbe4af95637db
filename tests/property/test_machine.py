"""The pure machine against a model of a pool and a caller that do as they are told, in any order.

The model keeps what the machine may not know (what is under way where, which worker is dead, what the
caller waits for) and moves on its own account: replies come, fail or never come, workers die, the
caller resets what it likes, time passes. Whatever the order: no illegal move, no lost step, no wait
without an end, no attempt too many.
"""

import inspect
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from envmgr.engine import events as e
from envmgr.engine.machine import IDLE, RESETTING, STEPPING, Machine, Policy
from envmgr.engine.states import EnvState as S

INF = float("inf")

policies = st.builds(
    Policy,
    episode_num=st.sampled_from([1, 2, INF]),
    auto_reset=st.booleans(),
    max_retry=st.sampled_from([3, 2, 1]),
    retry_wait=st.sampled_from([0.0, 0.1, 5.0]),
    renew=st.booleans(),
    reset_on_error=st.booleans(),
    retry_step=st.booleans(),
    close_on_error=st.booleans(),
    max_renewals=st.sampled_from([10, 3, 1]),
    renewal_window=st.sampled_from([10.0, 300.0]),
)
layouts = st.sampled_from([(1,), (1, 1), (2,), (2, 1), (3,)])


WELL = {"reset_comes_back", "step_comes_back", "caller_steps", "caller_takes", "worker_comes_up_or_not"}
MOVES: dict[str, tuple[Any, dict[str, Any]]] = {}


def move(possible, **arguments):
    """Marks what may happen next, when it may, and with what.

    One rule draws among those that are possible: hypothesis would draw among all rules, and gives up
    on walks in which most of them are not possible most of the time.
    """

    def mark(function):
        MOVES[function.__name__] = possible, arguments
        return function

    return mark


class World(RuleBasedStateMachine):
    """A pool and a caller.

    ``calls`` is what the workers are at; ``asked`` is what became of each step that the caller has not
    got back: open, held (its reset failed; it is handed over after one that does not), in, abnormal.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failed: e.Fail | None = None
        self.causes = 0

    @initialize(policy=policies, sizes=layouts, well=st.booleans(), every=st.sampled_from([None, 1, 2]))
    def start(self, policy: Policy, sizes: tuple[int, ...], well: bool, every: int | None) -> None:
        policy.renew_every = every if set(sizes) == {1} else None
        self.open(policy, sizes, well)

    def open(self, policy: Policy, sizes: tuple[int, ...], well: bool) -> None:
        self.policy = policy
        self.sizes = sizes
        self.failed = None
        self.envs_of = [range(sum(sizes[:w]), sum(sizes[: w + 1])) for w in range(len(sizes))]
        self.worker_of = [w for w, envs in enumerate(self.envs_of) for _ in envs]
        self.n = n = sum(sizes)
        self.now = 0.0
        self.launched = False
        self.up = [False] * len(sizes)
        self.starting = set(range(len(sizes)))
        self.dying: set[int] = set()
        self.retiring: set[int] = set()
        self.since = [0] * sum(sizes)
        self.calls: dict[int, str] = {}
        self.broken_off: dict[int, str] = {}
        self.late: set[int] = set()
        self.asked: dict[int, str] = {}
        self.again: set[int] = set()
        self.want: set[int] = set()
        self.bereft: set[int] = set()
        self.failures: list[list[str]] = [[] for _ in range(n)]
        self.tries = [0] * n
        self.episodes = [0] * n
        self.deaths: list[list[tuple[float, set[tuple[str, str]]]]] = [[] for _ in range(n)]
        self.to_renew: dict[int, str] = {}
        self.asked_in_between: set[int] = set()
        self.lost = [0] * n
        self.machine = Machine(policy, self.envs_of)
        self.tell(e.Opened())
        if well:  # to launch is not what most of the walk is for
            for w in range(len(sizes)):
                self.come_up(w)
            for i in range(n):
                self.reset_well(i)

    # -- doing as told ---------------------------------------------------------------------------------

    def tell(self, event: e.Event) -> None:
        self.obey(self.machine.handle(event, self.now))

    def obey(self, orders: list[e.Instruction]) -> None:
        for order in orders:
            getattr(self, "do_" + type(order).__name__.lower())(order)

    def do_sendreset(self, order: e.SendReset) -> None:
        i = order.env_id
        assert self.up[self.worker_of[i]], "a reset for a worker that is not up"
        if self.policy.renew_every is not None:
            assert self.episodes[i] - self.since[i] < self.policy.renew_every, (
                "another episode of a worn worker"
            )
        assert i not in self.calls, f"a reset while a {self.calls[i]} is under way"
        assert i in self.want, "a reset that nobody wants"
        assert self.asked.get(i, "held") == "held", "a reset before the step has ended"
        self.calls[i] = "reset"

    def do_sendstepagain(self, order: e.SendStepAgain) -> None:
        i = order.env_id
        assert self.policy.retry_step
        assert self.up[self.worker_of[i]], "a step for a worker that is not up"
        assert i not in self.calls, "a step that is under way is sent again"
        assert self.asked.get(i) == "open", "a step that nobody wants"
        self.tries[i] += 1
        assert self.tries[i] <= self.policy.max_retry
        self.calls[i] = "step"

    def do_renew(self, order: e.Renew) -> None:
        assert not self.up[order.worker], "a renewal of a worker that is up"
        assert order.worker not in self.starting, "two renewals at once"
        self.starting.add(order.worker)

    def do_kill(self, order: e.Kill) -> None:
        assert self.up[order.worker], "there is nothing to kill"
        self.dying.add(order.worker)

    def do_retire(self, order: e.Retire) -> None:
        w = order.worker
        assert self.up[w] and w not in self.dying, "there is nobody to send away"
        assert not any(i in self.calls for i in self.envs_of[w]), "it is at work"
        for i in self.envs_of[w]:
            assert self.episodes[i] - self.since[i] >= self.policy.renew_every, "it is not worn yet"
        self.dying.add(w)
        self.retiring.add(w)

    def do_interrupt(self, order: e.Interrupt) -> None:
        assert order.env_id in self.calls
        assert order.env_id not in self.broken_off, "a call is broken off once"

    def do_giveabnormal(self, order: e.GiveAbnormal) -> None:
        assert self.policy.reset_on_error
        assert self.asked.get(order.env_id) == "open", "an abnormal timestep that answers no step"
        self.asked[order.env_id] = "abnormal"

    def do_fail(self, order: e.Fail) -> None:
        i = order.env_id
        assert order.cause is not None
        if order.what == "reset" and self.failures[i] and order.cause != "mismatch":
            assert order.count == len(self.failures[i]) == self.policy.max_retry
            assert order.cause == self.failures[i][0], "the first cause is the one that is told"
        elif order.what == "step":
            assert not self.policy.reset_on_error
            assert self.asked.pop(i) == "open", "an error that answers no step"
        elif order.what == "streak":
            assert order.count == self.policy.max_retry + 1
            assert self.asked.pop(i) == "open", "an error that answers no step"
        elif order.what == "budget":
            assert order.count == self.policy.max_renewals + 1
            _, true = self.deaths[i][0]
            assert (order.cause, order.at) in true, "the first cause is the one that is told"
        assert order.close or (order.what == "step" and not self.policy.close_on_error)
        if order.close and self.failed is None:
            self.failed = order

    # -- small things ----------------------------------------------------------------------------------

    def alive(self) -> bool:
        return self.failed is None

    def cause(self, what: str) -> str:
        self.causes += 1
        return f"{what} {self.causes}"

    def call_ended(self, i: int) -> str | None:
        """Takes an env's call away; the cause with which it was broken off, if it was."""
        del self.calls[i]
        self.late.discard(i)
        return self.broken_off.pop(i, None)

    def pick(self, data, among) -> int:
        return data.draw(st.sampled_from(sorted(among)), "which")

    def at(self, call: str) -> list[int]:
        return [i for i, c in self.calls.items() if c == call]

    def ask(self, i: int) -> None:
        if i in self.calls:
            self.again.add(i)
        self.asked.pop(i, None)
        self.want.add(i)
        self.failures[i].clear()
        self.bereft.discard(i)
        if self.worker_of[i] not in self.dying:
            self.to_renew.pop(i, None)
        elif i in self.to_renew:
            self.asked_in_between.add(i)
        self.tell(e.ResetAsked(i))

    def lose(self, w: int, cause: str, env_fn: bool = False) -> None:
        """A worker is gone, or could not build its envs."""
        was_up, self.up[w] = self.up[w], False
        self.starting.discard(w)
        self.dying.discard(w)
        retired = w in self.retiring
        self.retiring.discard(w)
        running = max((i for i in self.envs_of[w] if i in self.calls), default=None)
        for i in self.envs_of[w]:
            call = self.calls.get(i)
            why = (self.call_ended(i) if call else None) or cause
            waits = self.launched and not was_up and self.machine.state(i) in (S.INIT, S.RESET)
            # A step that waits to be sent again is one, though its worker does nothing.
            again = was_up and self.machine.op[i] == STEPPING
            at = ("step" if again else call or "idle") if was_up else "init"
            true = {(why, at)}
            if was_up and (reset := self.to_renew.pop(i, None)):
                true = {(reset, "reset")} | (true if i in self.asked_in_between else set())
            self.asked_in_between.discard(i)
            self.lost[i] += bool(call or again or waits)
            if i in self.again:
                self.again.discard(i)
            elif call == "reset" or waits:
                self.failures[i].append(why)
            if self.machine.state(i) == S.RUN and self.machine.op[i] == IDLE:
                self.bereft.add(i)
            if retired:
                continue
            start = self.now - self.policy.renewal_window
            self.deaths[i] = [death for death in self.deaths[i] if death[0] >= start] + [(self.now, true)]
        failed = e.WorkerFailedToBuild(w, self.envs_of[w][-1], cause)
        self.tell(failed if env_fn else e.WorkerEnded(w, cause, running))

    @rule(data=st.data())
    def something(self, data) -> None:
        possible = [name for name, (condition, _) in MOVES.items() if condition(self)]
        # What goes well comes more often, or no walk would get far.
        possible += [name for name in possible if name in WELL] * 2
        name = data.draw(st.sampled_from(possible), "what")
        arguments = {key: data.draw(values, key) for key, values in MOVES[name][1].items()}
        if "data" in inspect.signature(getattr(self, name)).parameters:
            arguments["data"] = data
        getattr(self, name)(**arguments)

    # -- what workers do -------------------------------------------------------------------------------

    def come_up(self, w: int) -> None:
        self.starting.discard(w)
        self.up[w] = True
        for i in self.envs_of[w]:
            self.since[i] = self.episodes[i]
        self.tell(e.WorkerCameUp(w))
        if all(self.up) and not self.launched:
            self.launched = True
            for i in range(self.n):
                self.ask(i)

    @move(lambda self: self.alive() and self.starting, well=st.sampled_from([True, True, True, False]))
    def worker_comes_up_or_not(self, data, well: bool) -> None:
        w = self.pick(data, self.starting)
        if well or not self.launched:
            self.come_up(w)
        else:
            self.lose(w, self.cause("env_fn"), env_fn=True)

    @move(lambda self: self.alive() and self.launched)
    def worker_dies(self, data) -> None:
        there = self.starting | {w for w, up in enumerate(self.up) if up}
        if there:
            self.lose(self.pick(data, there), self.cause("death"))

    @move(lambda self: self.alive() and self.dying)
    def killed_worker_is_gone(self, data) -> None:
        self.lose(self.pick(data, self.dying), self.cause("kill"))

    def reset_well(self, i: int) -> None:
        assert self.machine.op[i] == RESETTING
        self.call_ended(i)
        again = i in self.again
        self.again.discard(i)
        if not again:
            self.want.discard(i)
        self.failures[i].clear()
        self.bereft.discard(i)
        self.tell(e.ResetDone(i))
        if not again:
            assert self.machine.state(i) == S.RUN
            if self.asked.get(i) == "held":
                self.asked[i] = "in"

    @move(lambda self: self.alive() and self.at("reset"))
    def reset_comes_back(self, data) -> None:
        self.reset_well(self.pick(data, self.at("reset")))

    @move(lambda self: self.alive() and self.at("reset"), final=st.sampled_from([False, False, False, True]))
    def reset_fails(self, data, final: bool) -> None:
        i = self.pick(data, self.at("reset"))
        overrun = self.call_ended(i)
        self.reset_failed(i, "mismatch" if final and not overrun else self.cause("reset"))

    def reset_failed(self, i: int, cause: str) -> None:
        if i in self.again:
            self.again.discard(i)
        elif cause != "mismatch":
            self.failures[i].append(cause)
            if self.policy.renew:
                self.to_renew[i] = cause
        self.lost[i] += 1
        self.tell(e.ResetFailed(i, cause, final=cause == "mismatch"))

    def step_well(self, i: int) -> None:
        assert self.machine.op[i] == STEPPING
        self.call_ended(i)
        if i in self.again:
            assert self.machine.wants_again(i)
            self.again.discard(i)
            self.obey(self.machine.drop(i))
            return
        self.machine.good_step(i)
        self.machine.steps_done([i])
        self.asked[i] = "in"

    @move(lambda self: self.alive() and self.at("step"))
    def step_comes_back(self, data) -> None:
        self.step_well(self.pick(data, self.at("step")))

    @move(lambda self: self.alive() and self.at("step"), final=st.booleans())
    def step_fails(self, data, final: bool) -> None:
        i = self.pick(data, self.at("step"))
        overrun = self.call_ended(i)
        self.again.discard(i)
        self.lost[i] += 1
        self.tell(e.StepFailed(i, overrun or self.cause("step"), final=final or overrun is not None))

    @move(lambda self: self.alive() and self.policy.auto_reset and self.at("step"))
    def step_ends_an_episode_and_the_reset_after_it_fails(self, data) -> None:
        i = self.pick(data, self.at("step"))
        if i in self.again or self.machine.breaks_after([i])[0]:
            return
        self.step_well(i)
        self.asked[i] = "held"
        self.want.add(i)
        self.episodes[i] += 1
        self.machine.episodes[i] += 1
        self.machine.reset_followed(i)
        self.reset_failed(i, self.cause("reset"))

    @move(lambda self: self.alive() and self.policy.renew_every and self.at("step"))
    def step_ends_an_episode_that_a_renewal_follows(self, data) -> None:
        """As in the array face: it is handed over with the first observation of the fresh worker."""
        i = self.pick(data, self.at("step"))
        if i in self.again or not self.machine.renewal_follows(i):
            return
        self.step_well(i)
        self.asked[i] = "held"
        self.want.add(i)
        self.episodes[i] += 1
        self.tell(e.EpisodeEnded(i))
        assert self.worker_of[i] in self.dying  # it retires, or is being killed for a call that took too long

    @move(lambda self: self.alive() and set(self.calls) - self.late)
    def deadline_passes(self, data) -> None:
        i = self.pick(data, set(self.calls) - self.late)
        cause = self.cause("overrun")
        goes_anyway = self.worker_of[i] in self.dying
        orders = self.machine.handle(e.DeadlinePassed(i, cause), self.now)
        self.obey(orders)
        if goes_anyway:
            assert orders == [], "its worker is being killed already, for a sibling"
            self.late.add(i)
        elif i in self.broken_off:
            self.late.add(i)
            assert self.worker_of[i] in self.dying
        else:
            assert orders == [e.Interrupt(i)], "a call is broken off before anything is killed"
            self.broken_off[i] = cause

    # -- what the caller does, and time ----------------------------------------------------------------

    def steppable(self) -> list[int]:
        machine = self.machine
        free = (machine.states == S.RUN) & (machine.op == IDLE)
        return [i for i in range(self.n) if free[i] and i not in self.asked]

    @move(lambda self: self.alive() and self.steppable())
    def caller_steps(self, data) -> None:
        i = self.pick(data, self.steppable())
        self.asked[i] = "open"
        self.tries[i] = 1
        if self.machine.owed(i) is not None:
            assert i in self.bereft, "it has been reset since its worker died"
            self.bereft.discard(i)
            self.lost[i] += 1
            self.obey(self.machine.take_owed(i))
        else:
            assert self.up[self.worker_of[i]]
            self.machine.steps_sent([i])
            self.calls[i] = "step"

    def in_hand(self) -> list[int]:
        return [i for i, how in self.asked.items() if how in ("in", "abnormal")]

    @move(
        lambda self: self.alive() and self.in_hand(),
        says=st.sampled_from(["goes on", "done", "done", "abnormal"]),
    )
    def caller_takes(self, data, says: str) -> None:
        i = self.pick(data, self.in_hand())
        self.take(i, says)

    def take(self, i: int, says: str) -> None:
        assert self.machine.state(i) == S.RUN
        if self.asked.pop(i) == "abnormal":
            self.want.add(i)
            self.tell(e.EpisodeEnded(i, abnormal=True))
        elif says == "abnormal":
            self.tell(e.SaidAbnormal(i))
            assert self.machine.state(i) == S.ERROR
        elif says == "done":
            self.episodes[i] += 1
            last = self.episodes[i] >= self.policy.episode_num
            if self.policy.auto_reset and not last:
                self.want.add(i)
            self.tell(e.EpisodeEnded(i))
            if last:
                assert self.machine.state(i) == S.DONE
            elif not self.policy.auto_reset:
                assert self.machine.state(i) == S.NEED_RESET

    @move(lambda self: self.alive() and self.launched)
    def caller_resets(self, data) -> None:
        self.ask(data.draw(st.integers(0, self.n - 1), "which"))

    @move(lambda self: self.alive(), seconds=st.sampled_from([0.01, 0.1, 1.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tell(e.Tick())

    @move(lambda self: self.alive() and self.machine.next_due() is not None)
    def timer_goes_off(self) -> None:
        self.now = max(self.now, self.machine.next_due())
        self.tell(e.Tick())
        due = self.machine.next_due()
        assert due is None or due > self.now or self.policy.retry_wait == 0

    @move(lambda self: not self.alive())
    def relaunch(self) -> None:
        """The engine closes the manager at such a Fail, and the caller launches it again."""
        self.close()
        self.open(self.policy, self.sizes, True)

    # -- what always holds -----------------------------------------------------------------------------

    @invariant()
    def op_and_calls_agree(self) -> None:
        if not self.alive():
            return
        for i in range(self.n):
            op, state = self.machine.op[i], self.machine.state(i)
            if state in (S.DONE, S.NEED_RESET, S.ERROR, S.VOID, S.INIT):
                assert op == IDLE, f"env {i} is {state.name} and busy"
            if i in self.calls:
                assert op == {"step": STEPPING, "reset": RESETTING}[self.calls[i]]
            elif op != IDLE:
                assert op == STEPPING, "a reset that was sent and is nowhere"
                assert self.machine.next_due() is not None, "a step that is nowhere"

    @invariant()
    def no_step_is_lost(self) -> None:
        if self.alive():
            for i, how in self.asked.items():
                assert how != "open" or i in self.calls or self.machine.op[i] == STEPPING
                assert how != "held" or i in self.want

    @invariant()
    def whoever_waits_for_a_reset_gets_one(self) -> None:
        if not self.alive():
            return
        for i in self.want:
            w = self.worker_of[i]
            under_way = i in self.calls or w in self.starting or w in self.dying
            assert under_way or self.machine.next_due() is not None, f"env {i} waits for ever"

    @invariant()
    def attempts_and_renewals_are_bounded(self) -> None:
        if self.alive():
            assert all(len(causes) < self.policy.max_retry for causes in self.failures)
            assert all(len(times) <= self.policy.max_renewals for times in self.deaths)

    @invariant()
    def failures_are_counted(self) -> None:
        if self.alive():
            assert [self.machine.failures(i) for i in range(self.n)] == self.lost

    @invariant()
    def episodes_are_counted(self) -> None:
        assert self.machine.episodes.tolist() == self.episodes
        assert self.machine.all_done() == all(self.machine.state(i) == S.DONE for i in range(self.n))

    # -- the end ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """From wherever it is, all is well again once nothing goes wrong any more."""
        for _ in range(100):
            if not self.alive():
                return
            if self.dying:
                self.lose(min(self.dying), self.cause("kill"))
            elif self.starting:
                self.come_up(min(self.starting))
            elif self.calls:
                i = min(self.calls)
                self.reset_well(i) if self.calls[i] == "reset" else self.step_well(i)
            elif self.in_hand():
                self.take(self.in_hand()[0], "goes on")
            elif self.machine.next_due() is not None:
                self.timer_goes_off()
            else:
                break
        else:
            raise AssertionError("it never comes to rest")
        assert not self.want, "somebody waits for a reset that nobody does"
        assert not self.asked, "somebody waits for a step that nobody does"
        assert all(self.up)
        assert set(self.machine.states.tolist()) <= {S.RUN, S.DONE, S.NEED_RESET, S.ERROR}

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.settle()
        self.close()

    def close(self) -> None:
        self.machine.handle(e.Closed(), self.now)
        assert set(self.machine.states.tolist()) == {S.VOID}
        assert not self.machine.op.any()
        assert self.machine.next_due() is None
        for event in (e.WorkerEnded(0, "late"), e.ResetDone(0), e.ResetAsked(0), e.Tick(), e.Closed()):
            assert self.machine.handle(event, self.now + 100) == []


TestMachine = World.TestCase
TestMachine.settings = settings(
    max_examples=60, stateful_step_count=120, deadline=None, suppress_health_check=list(HealthCheck)
)
# It waits for nothing, it computes; where the cores are busy that takes long.
pytestmark = [pytest.mark.case("F14", "O16", "F12"), pytest.mark.timeout(300)]
