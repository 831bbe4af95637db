"""The adapter for envs with one agent: Gymnasium, gym 0.26, old gym, timesteps.

These differ in what ``reset`` and ``step`` return, and only a real call shows which. So nothing is
tried out: the first step that the user asks for decides the form, and from then on the quickest
callable for it is used. Resets are rare enough to be looked at each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envmgr.envs import forms, probe
from envmgr.envs.adapted import Adapted
from envmgr.envs.chain import find, name_of
from envmgr.envs.old_info import spaces_from_info


class ClassicEnv(Adapted):
    """An env with one agent, in any of the classic forms."""

    __slots__ = ("_ambiguous", "_known")

    def __init__(self, env: Any) -> None:
        spaces = [find(env, name) for name in ("observation_space", "action_space", "reward_space")]
        if spaces[0] is None and spaces[1] is None:
            spaces = spaces_from_info(find(env, "info")) or spaces
        super().__init__(
            env,
            probe.guess_style(env),
            observation_space=spaces[0],
            action_space=spaces[1],
            reward_space=spaces[2],
        )
        self._ambiguous = _is_pair_with_dict(self.observation_space)
        self._known = False
        self.step = self._first_step

    def _first_step(self, action: Any) -> Any:
        """Steps, and learns from what comes back."""
        if self._known:  # someone still holds this method
            return self.step(action)
        step = self.env.step
        result = step(action)
        form, self.style = forms.form_of(result, self.style, name_of(self.env))
        self.step = form(step)
        self._known = True
        self._settled()
        return form(lambda _: result)(action)

    def _use(self, env: Any) -> None:
        super()._use(env)
        self._known = False
        self.step = self._first_step
        self._settled()

    def _reset(self, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        result = self.env.reset(**kwargs)
        looks_paired = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)
        if looks_paired and (not self._ambiguous or self._has_info(result)):
            return result[0], result[1]
        return result, {}

    def _has_info(self, result: tuple[Any, Any]) -> bool:
        """Whether ``(x, dict)`` is an observation with an info, where an observation alone looks so too."""
        alone, with_info = (_contains(self.observation_space, value) for value in (result, result[0]))
        return with_info if alone != with_info else probe.is_new_api(self.env)


def _contains(space: Any, value: Any) -> bool:
    """Whether a value is of a space; a space that fails at a value of another form does not contain it."""
    try:
        return bool(space.contains(value))
    except Exception:  # spaces raise what they like at a value of another form
        return False


def _is_pair_with_dict(space: Any) -> bool:
    """Whether the space describes tuples of two of which the second is a dict."""
    parts = getattr(space, "spaces", None)
    if not isinstance(parts, (tuple, list)) or len(parts) != 2:
        return False
    return hasattr(getattr(parts[1], "spaces", None), "keys")
