"""The timestep: what one env gives back for one action.

A plain named tuple of four, because the field's older code unpacks it as
``obs, reward, done, info``; what newer code wants besides is a property. Nothing here knows of
processes or managers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self


class _Four(NamedTuple):
    obs: Any
    reward: Any
    done: bool
    info: Any


class BaseEnvTimestep(_Four):
    """One env's answer to one action.

    Attributes:
        obs: The observation, with the structure of the env's ``observation_space``.
        reward: The reward, in the env's own shape.
        done: Whether the episode is over: ``terminated or truncated``.
        info: The env's info dict. When the episode ended by truncation it carries
            ``'TimeLimit.truncated': True``; when it did not, that key is not true in what a manager gives.
    """

    # No __slots__: a timestep that is both terminated and truncated carries that beside the four.

    @classmethod
    def both(cls, obs: Any, reward: Any, info: Any) -> BaseEnvTimestep:
        """A timestep that is terminated and truncated at once, which four values alone cannot say."""
        timestep = cls(obs, reward, True, info)
        timestep.__dict__["both"] = True
        return timestep

    def _replace(self, **fields: Any) -> Self:
        """The same with other values; what it carries beside the four stays."""
        new = super()._replace(**fields)
        new.__dict__.update(self.__dict__)
        return new

    @property
    def terminated(self) -> bool:
        """Whether the episode ended in a terminal state of the task."""
        return bool(self.done) and (not self.truncated or self.__dict__.get("both") is True)

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut off from outside (a time limit, a failure)."""
        if not self.done:
            return False
        info = self.info
        told = isinstance(info, dict) and bool(info.get("TimeLimit.truncated", False))
        return told or self.__dict__.get("both") is True


class EnvIdTimestep(BaseEnvTimestep):
    """A timestep that says whose it is, for callers that get a list of them.

    Attributes:
        env_id: The env that it is of; it is no fifth value when the timestep is unpacked.
    """

    env_id: int

    @classmethod
    def of(cls, env_id: int, timestep: BaseEnvTimestep) -> EnvIdTimestep:
        """The same timestep with an env_id."""
        new = cls(*timestep)
        new.__dict__.update(timestep.__dict__, env_id=env_id)
        return new
