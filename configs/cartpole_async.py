"""8 CartPole envs in processes, stepped as they become ready: 300 episodes with a small numpy policy."""

main_config = dict(
    exp_name="cartpole_async",
    env=dict(
        id="CartPole-v1",
        kwargs={},
        env_num=8,
        manager=dict(wait_num=2, step_wait_timeout=0.01),
    ),
    collect=dict(
        n_episode=300,
        seed=0,
        policy="envmgr.cli.policies:cartpole",
        out_dir="runs",
    ),
)
create_config = dict(env_manager=dict(type="async_subprocess", import_names=[]))
