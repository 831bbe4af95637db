"""``BaseEnv``: what an env offers to envmgr, written down.

Nobody has to inherit from it: any object that does the same is as good, and Gymnasium, gym,
PettingZoo and dm_env envs are understood in their own form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from envmgr.timestep import BaseEnvTimestep


class BaseEnv(ABC):
    """An env that returns timesteps.

    Beside the methods below an env may offer any of these; what it does not have is done without:

    - ``render()``: an image as ``(height, width, 3)`` uint8, which ``ready_imgs`` shows;
    - ``enable_save_replay(replay_path)``: from the next reset on, save what is played to that folder;
    - ``reward_shaping(transitions)``: a list of transitions with their rewards reshaped;
    - ``random_action()``: a random action, where a sample of the action space would not do.

    Attributes:
        observation_space: A space (of Gymnasium, gym, or with the same attributes) of the observations.
        action_space: A space of the actions.
        reward_space: Shape and dtype of the reward, such as ``Box(-inf, inf, (1,), float32)``; None for
            a plain number.
    """

    observation_space: Any = None
    action_space: Any = None
    reward_space: Any = None

    @abstractmethod
    def reset(self, **kwargs: Any) -> Any:
        """Starts an episode.

        Args:
            **kwargs: What the user gave as ``reset_param``; at automatic resets the same again.

        Returns:
            The first observation.
        """

    @abstractmethod
    def step(self, action: Any) -> BaseEnvTimestep:
        """Plays one action.

        Returns:
            ``BaseEnvTimestep(obs, reward, done, info)``. An episode that is cut off from outside has
            ``info['TimeLimit.truncated']=True``; an env that finds itself broken says
            ``info['abnormal']=True``.
        """

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seeds the env; called before the reset from which on it holds.

        Args:
            seed: The seed.
            dynamic_seed: Whether episodes should differ (the seed changes with each, reproducibly) or all
                be the same.
        """
        self._seed = seed
        self._dynamic_seed = dynamic_seed

    def close(self) -> None:  # noqa: B027 - most envs have nothing to let go
        """Lets go of what the env holds. Called once, also after an error."""
