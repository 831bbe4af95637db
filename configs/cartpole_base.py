"""8 CartPole envs in the process that calls, one after the other: to debug, and to compare with."""

main_config = dict(
    exp_name="cartpole_base",
    env=dict(
        id="CartPole-v1",
        kwargs={},
        env_num=8,
        manager=dict(),
    ),
    collect=dict(
        n_episode=300,
        seed=0,
        policy="envmgr.cli.policies:cartpole",
        out_dir="runs",
    ),
)
create_config = dict(env_manager=dict(type="base", import_names=[]))
