"""``Adapted``: one env in the form that workers call, whatever its own form is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envmgr.envs import probe, replay
from envmgr.envs.chain import chain, find, get, put
from envmgr.envs.rewards import reward_spec

_SPACES = ("observation_space", "action_space", "reward_space")


class Adapted:
    """One env, adapted. Workers call this and nothing else.

    Attributes:
        env: The user's own object (its outermost wrapper).
        style: ``'gymnasium'``, ``'gym26'``, ``'gym_old'``, ``'timestep'``, ``'pettingzoo'`` or
            ``'dm_env'``. Guessed by structure at first; the first step makes it certain.
        step: ``step(action) -> (obs, reward, terminated, truncated, info)``. Of an env with five
            values this is the env's own ``step`` once the first step has shown it.
        on_settled: Called without arguments when ``step`` has become another callable, that is: in
            the first step, and after ``enable_save_replay``. A loop that holds ``step_fn()`` fetches
            it again then; if it does not, what it holds stays right and is a little slower.
        observation_space: The env's own object, a space-like one for APIs without spaces, or None.
        action_space: The same for actions.
        reward_space: The same for rewards.
        reward_dtype: The dtype of the reward.
        reward_shape: The shape of the reward.
    """

    __slots__ = (
        "__weakref__",
        "_by_reset",
        "_pending_seed",
        "action_space",
        "env",
        "observation_space",
        "on_settled",
        "reward_dtype",
        "reward_shape",
        "reward_space",
        "step",
        "style",
    )

    step: Callable[[Any], Any]

    def __init__(
        self, env: Any, style: str, *, observation_space: Any, action_space: Any, reward_space: Any
    ) -> None:
        self.env = env
        self.style = style
        self.observation_space = observation_space
        self.action_space = action_space
        self.reward_space = reward_space
        self.reward_dtype: np.dtype[Any]
        self.reward_shape: tuple[int, ...]
        self.reward_dtype, self.reward_shape = reward_spec(reward_space)
        self.on_settled: Callable[[], None] | None = None
        self._by_reset: bool | None = None
        self._pending_seed: int | None = None

    # -- stepping and resetting --------------------------------------------------------------------

    def step_fn(self) -> Callable[[Any], Any]:
        """The quickest callable for a step that is known now; worth fetching again after the first step."""
        return self.step

    def reset(self, seed: int | None = None, params: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Starts an episode.

        Args:
            seed: Handed over in the env's own way: ``reset(seed=)``, or ``env.seed(seed)`` before.
                An env that knows neither goes on unseeded.
            params: Keyword arguments of the env's ``reset``; a ``'seed'`` among them wins.

        Returns:
            The first observation, and the info (empty for an env that gives none).
        """
        kwargs = dict(params) if params else {}
        if seed is None:
            seed = self._pending_seed
        if seed is not None and "seed" not in kwargs:
            if self._seeds_by_reset():
                kwargs["seed"] = seed
            else:
                self._call_seed(seed, None)
        result = self._reset(kwargs)
        self._pending_seed = None
        return result

    def _reset(self, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        raise NotImplementedError

    # -- seeds ----------------------------------------------------------------------------------------

    def seed(self, seed: int, dynamic_seed: bool | None = None) -> None:
        """Seeds the env from its next reset on.

        An env whose ``reset`` takes the seed gets it there; another's ``seed`` method is called now.

        Args:
            seed: The seed.
            dynamic_seed: Whether an env that varies its seed per episode by itself should. None leaves
                it to the env's own default. Envs that know no such thing are not told.
        """
        if self._seeds_by_reset():
            self._pending_seed = seed
        else:
            self._call_seed(seed, dynamic_seed)

    def _seeds_by_reset(self) -> bool:
        if self._by_reset is None:
            self._by_reset = probe.seeds_by_reset(self.env)
        return self._by_reset

    def _call_seed(self, seed: int, dynamic_seed: bool | None) -> None:
        function = find(self.env, "seed")
        if not callable(function):
            return
        if dynamic_seed is not None and probe.names_it(function, "dynamic_seed"):
            function(seed, dynamic_seed=dynamic_seed)
        else:
            function(seed)

    # -- everything else ------------------------------------------------------------------------------

    def close(self) -> None:
        """Calls the env's ``close``, if it has one."""
        function = find(self.env, "close")
        if callable(function):
            function()

    def get(self, name: str) -> Any:
        """Reads an attribute, from the outermost wrapper that has it.

        Raises:
            AttributeError: If neither the env nor any wrapper has it.
        """
        try:
            return get(self.env, name)
        except AttributeError:
            if name in _SPACES:
                return getattr(self, name)
            raise

    def set(self, name: str, value: Any) -> None:
        """Sets an attribute on the innermost env that has it, or on the innermost one if none has."""
        put(self.env, name, value)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method, looked up as ``get`` does.

        ``enable_save_replay``, ``render`` and ``random_action`` work for envs that have them in
        another form, too.

        Raises:
            AttributeError: If there is no such method.
            TypeError: If it is there but cannot be called.
        """
        special = _SPECIAL.get(name)
        if special is not None:
            return special(self, *args, **kwargs)
        function = self.get(name)
        if not callable(function):
            raise TypeError(
                f"{name!r} of {type(self.env).__name__} is a {type(function).__name__}, not a method"
            )
        return function(*args, **kwargs)

    def enable_save_replay(self, path: Any = None) -> None:
        """Has the env save what it plays: by its own method, or by Gymnasium's recorder.

        Raises:
            EnvManagerError: If the env can do neither; the message says what it lacks.
        """
        function = find(self.env, "enable_save_replay")
        if callable(function):
            function(path)
        else:
            self._use(replay.record(self.env, path))

    def render(self, mode: str | None = None) -> Any:
        """Renders: ``env.render(mode)`` for envs that take a mode (by default ``'rgb_array'``), else
        ``env.render()``.
        """  # noqa: D205
        function = self.get("render")
        for keyword in ("mode", "render_mode"):
            if probe.names_it(function, keyword):
                return function(**{keyword: mode or "rgb_array"})
        return function()

    def random_action(self) -> Any:
        """The env's own ``random_action()``, else a sample of its action space."""
        function = find(self.env, "random_action")
        return function() if callable(function) else self.action_space.sample()

    def _use(self, env: Any) -> None:
        """Puts another object (a further wrapper) in the place of the env."""
        self.env = env
        self._by_reset = None

    def _settled(self) -> None:
        if self.on_settled is not None:
            self.on_settled()

    def __repr__(self) -> str:
        layers = " > ".join(type(obj).__name__ for obj in chain(self.env))
        return f"{type(self).__name__}({layers}, style={self.style!r})"


_SPECIAL: dict[str, Callable[..., Any]] = {
    "enable_save_replay": Adapted.enable_save_replay,
    "render": Adapted.render,
    "random_action": Adapted.random_action,
}
