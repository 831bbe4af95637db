"""8 CartPole envs in processes started by fork, stepped all together."""

main_config = dict(
    exp_name="cartpole_subprocess_fork",
    env=dict(
        id="CartPole-v1",
        kwargs={},
        env_num=8,
        manager=dict(context="fork"),
    ),
    collect=dict(
        n_episode=300,
        seed=0,
        policy="envmgr.cli.policies:cartpole",
        out_dir="runs",
    ),
)
create_config = dict(env_manager=dict(type="subprocess", import_names=[]))
