"""The array face with torch tensors: over the same memory, and pinned where there is something to copy to."""

from __future__ import annotations

import numpy as np
import pytest

from envmgr import ConfigError
from envmgr.envs.toy import DictEnv
from envmgr.managers.arrays import to_torch
from tests.helpers import envs
from tests.helpers.managers import in_base, in_base_and_sync, in_sync, many


@in_base_and_sync
def test_results_are_tensors_of_the_callers_own(make, torch):
    manager = make(many(envs.CounterEnv, 2), as_torch=True)
    manager.launch()
    obs, _ = manager.reset_arrays()
    out = manager.step_arrays(torch.zeros(2, dtype=torch.int64))
    assert out.obs.tolist() == [[0, 0, 1], [1, 0, 1]] and out.reward.tolist() == [1, 101]
    assert {type(x) for x in (obs, out.obs, out.reward, out.terminated, out.truncated)} == {torch.Tensor}
    assert out.terminated.dtype == torch.bool
    kept = out.obs.clone()
    manager.step_arrays([0, 0])
    assert torch.equal(out.obs, kept) and obs.tolist() == [[0, 0, 0], [1, 0, 0]]


@in_sync
def test_without_copies_they_are_the_rows_themselves(make, torch):
    manager = make(many(envs.CounterEnv, 2), as_torch=True, copy_on_get=False)
    manager.launch()
    obs, _ = manager.reset_arrays()
    out = manager.step_arrays([0, 0])
    assert out.obs.data_ptr() == obs.data_ptr()
    assert obs.tolist() == [[0, 0, 1], [1, 0, 1]]


@in_base
def test_a_dict_of_tensors(make, torch):
    manager = make([DictEnv, DictEnv], as_torch=True)
    manager.launch()
    obs, _ = manager.reset_arrays()
    assert {key: (type(x), tuple(x.shape)) for key, x in obs.items()} == {
        "img": (torch.Tensor, (2, 64, 64, 3)),
        "vec": (torch.Tensor, (2, 16)),
        "k": (torch.Tensor, (2,)),
    }


@pytest.mark.parametrize("writeable", [True, False])
def test_no_copy(writeable, torch):
    array = np.zeros((2, 3), np.float32)
    view = array[:]
    view.flags.writeable = writeable
    tensors = to_torch({"a": (view, "text")})
    array[1, 2] = 7
    assert tensors["a"][0][1, 2] == 7 and tensors["a"][1] == "text"
    assert view.flags.writeable == writeable


class TestPinned:
    @in_base
    def test_needs_tensors(self, make):
        with pytest.raises(ConfigError, match="as_torch=True"):
            make(many(envs.CounterEnv, 1), pin_memory=True)

    @in_base
    def test_needs_a_gpu(self, make, monkeypatch, torch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(ConfigError, match=r"pin_memory=True needs CUDA"):
            make(many(envs.CounterEnv, 1), pin_memory=True, as_torch=True)

    @in_base
    def test_every_tensor_is(self, make, monkeypatch, torch):
        """What a GPU's driver would do is replaced: it marks what it was asked for."""
        asked = []

        def pin_memory(tensor):
            asked.append(tensor)
            return tensor.clone()

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
        manager = make(many(envs.CounterEnv, 2), pin_memory=True, as_torch=True)
        manager.launch()
        manager.reset_arrays()
        out = manager.step_arrays([0, 0])
        assert len(asked) == 5
        assert out.obs.data_ptr() != asked[1].data_ptr() and torch.equal(out.obs, asked[1])
