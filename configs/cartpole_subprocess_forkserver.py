"""8 CartPole envs in processes started by forkserver, stepped all together."""

main_config = dict(
    exp_name="cartpole_subprocess_forkserver",
    env=dict(
        id="CartPole-v1",
        kwargs={},
        env_num=8,
        manager=dict(context="forkserver"),
    ),
    collect=dict(
        n_episode=300,
        seed=0,
        policy="envmgr.cli.policies:cartpole",
        out_dir="runs",
    ),
)
create_config = dict(env_manager=dict(type="subprocess", import_names=[]))
