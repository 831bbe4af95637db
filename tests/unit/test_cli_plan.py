"""From a config file and options to a plan."""

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from envmgr.cli.env_factory import EnvFactory, load
from envmgr.cli.plan import Options, Plan, make_plan
from envmgr.errors import ConfigError


@pytest.fixture(autouse=True)
def _path_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def plan_of(tmp_path: Path, text: str, **options: Any) -> Plan:
    path = tmp_path / "trial.yaml"
    path.write_text(text, encoding="utf-8")
    return make_plan(str(path), Options(**options))


MINIMAL = "env: {id: CartPole-v1, manager: {type: base}}\n"


def test_defaults(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, MINIMAL)
    assert plan.name == "trial"
    assert plan.env_num == 8
    assert plan.n_episode == 100
    assert plan.seed is None
    assert plan.policy_name == "random"
    assert plan.directory == Path("runs/trial")
    assert plan.factory == EnvFactory("CartPole-v1")
    assert plan.manager["type"] == "base"
    assert plan.manager["episode_num"] == 13
    assert plan.remarks == []


def test_all_keys_and_the_options_before_them(tmp_path: Path) -> None:
    text = """
exp_name: mine
env:
  factory: "envmgr.envs.toy:CounterEnv"
  kwargs: {length: 3}
  env_num: 4
  manager: {type: subprocess}
collect: {n_episode: 10, seed: 7, policy: random, out_dir: there, save_rollouts: false}
"""
    plan = plan_of(tmp_path, text)
    assert (plan.n_episode, plan.quotas, plan.seed) == (10, [3, 3, 2, 2], 7)
    assert plan.directory == Path("there/mine")
    assert not plan.save_rollouts
    assert plan.factory.kwargs == {"length": 3}
    assert type(plan.factory.kwargs) is dict
    plan = plan_of(tmp_path, text, episodes=4, out=tmp_path, type="async_subprocess", env_num=2, seed=1)
    assert (plan.quotas, plan.seed, plan.directory) == ([2, 2], 1, tmp_path / "mine")
    assert plan.manager["type"] == "async_subprocess"
    assert plan.described()["env"] == "envmgr.envs.toy:CounterEnv"


def test_fewer_episodes_than_envs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, MINIMAL, episodes=3)
    assert plan.quotas == [1, 1, 1]
    assert "need no more than 3 of the 8 envs" in plan.remarks[0]


def test_a_lower_limit_of_the_manager_holds(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "env: {id: X, env_num: 2, manager: {type: base, episode_num: 3}}\n")
    assert plan.quotas == [3, 3]
    assert plan.manager["episode_num"] == 3
    assert "leaves 3 episodes per env" in plan.remarks[0]


def test_other_keys_at_the_top_are_said_to_be_unused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, MINIMAL + "policy: {lr: 0.1}\nx-mine: 3\n")
    assert plan.remarks == ["not used by this command: policy"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env: {manager: {type: base}}", "env needs either id"),
        ("env: {id: A, factory: 'b:c', manager: {type: base}}", "not both"),
        ("env: {id: 3, manager: {type: base}}", r"env\.id=3"),
        ("env: {factory: nocolon, manager: {type: base}}", "'package.module:callable'"),
        ("env: {id: A, env_nums: 3, manager: {type: base}}", r"env\.env_nums; did you mean 'env_num'"),
        ("env: {id: A, env_num: 0, manager: {type: base}}", r"env\.env_num=0: must be a whole number"),
        ("env: {id: A, env_num: true, manager: {type: base}}", r"env\.env_num=True"),
        ("env: {id: A, kwargs: 3, manager: {type: base}}", r"env\.kwargs=3"),
        (MINIMAL + "collect: {n_episodes: 3}", r"collect\.n_episodes; did you mean 'n_episode'"),
        (MINIMAL + "collect: {n_episode: 2.5}", r"collect\.n_episode=2\.5"),
        (MINIMAL + "collect: {seed: -1}", r"collect\.seed=-1"),
        (MINIMAL + "collect: {policy: cartpol}", "must be one of cartpole, random"),
        (MINIMAL + "collect: {policy: 'no_such_module:f'}", "'no_such_module' could not be imported"),
        (MINIMAL + "collect: {policy: 'envmgr.cli.policies:nothing'}", "has no callable 'nothing'"),
        (MINIMAL + "collect: {policy: 3}", r"collect\.policy=3"),
        (MINIMAL + "collect: {policy: 'os:getcwd'}", "is called with"),
        (MINIMAL + "collect: {policy: cartpole, policy_kwargs: {noize: 1}}", "argument 'noize'"),
        (MINIMAL + "collect: {out_dir: 3}", r"collect\.out_dir=3: must be a path"),
        (MINIMAL + "collect: {save_rollouts: 1}", "must be True or False"),
        (MINIMAL + "collect: 3", "collect is a dict, not int"),
        (MINIMAL + "colect: {n_episode: 3}", "unknown key 'colect'; did you mean 'collect'"),
        (MINIMAL + "exp_name: ../up", "must be a name, or a path below"),
        ("env: {id: A, manager: {type: bse}}", "did you mean 'base'"),
        ("env: {id: A, manager: {type: base, max_retri: 2}}", "max_retry"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(tmp_path, text)


def test_modules_beside_the_config_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "beside_the_config.py").write_text(
        "def policy(a, o, seed, gain=1):\n    return ('made', gain)\n"
    )
    text = MINIMAL + "collect: {policy: 'beside_the_config:policy', policy_kwargs: {gain: 3}}"
    plan = plan_of(tmp_path, text)
    assert plan.policy(None, None, 0) == ("made", 3)
    sys.modules.pop("beside_the_config")


def test_a_python_config_may_give_callables(tmp_path: Path) -> None:
    path = tmp_path / "trial.py"
    path.write_text(
        "def make_env(n): return n\n"
        "def make_policy(a, o, s): return 'policy'\n"
        "main_config = dict(env=dict(factory=make_env, kwargs=dict(n=3), manager=dict(type='base')),\n"
        "                   collect=dict(policy=make_policy))\n"
    )
    plan = make_plan(str(path), Options())
    assert plan.factory() == 3
    assert plan.factory.name == "make_env"
    assert plan.policy(None, None, None) == "policy"
    assert plan.policy_name == "make_policy"


def test_a_factory_pickles_and_builds() -> None:
    factory = pickle.loads(
        pickle.dumps(EnvFactory(factory="envmgr.envs.toy:CounterEnv", kwargs={"env_id": 3}))
    )
    assert factory().env_id == 3
    env = EnvFactory("CartPole-v1")()
    assert env.spec.id == "CartPole-v1"
    env.close()


def test_load_names_what_there_is() -> None:
    assert load("envmgr.envs.toy:NullEnv.reset", "env.factory").__name__ == "reset"
    with pytest.raises(ConfigError, match=r"env\.factory='envmgr\.registry:Regstry'.*it has .*Registry"):
        load("envmgr.registry:Regstry", "env.factory")


@pytest.mark.parametrize("name", ["base", "subprocess"])
def test_a_manager_that_takes_lists_is_refused_with_the_one_to_choose(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}_v2' takes lists.*choose '{name}'"):
        plan_of(tmp_path, MINIMAL, type=f"{name}_v2")
