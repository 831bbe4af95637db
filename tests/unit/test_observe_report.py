"""Recorder, rollouts file, summary and picture."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envmgr.observe import rollouts
from envmgr.observe.files import plain, replacing, write_json
from envmgr.observe.rollouts import Recorder
from envmgr.observe.run_report import RunRecord, env_times, summary, time_shares, write
from envmgr.timestep import BaseEnvTimestep
from tests.helpers.pictures import draw_nothing


def played(recorder: Recorder, env_id: int, obs: list[Any], *, reward: Any = 1.0, info: Any = None) -> None:
    """Plays an episode: ``obs`` has one more than there are steps."""
    for t in range(len(obs) - 1):
        over = t == len(obs) - 2
        recorder.sent([env_id], rollouts.stack([obs[t]]), [t])
        recorder.received(
            env_id, BaseEnvTimestep(obs[t + 1], reward, over, (info or {}) if over else {}), 0.5
        )


def record_of(recorder: Recorder, **more: Any) -> RunRecord:
    stats = {i: {"steps": 3, "episodes": 1, "step_time": 0.25, "reset_time": 0.25} for i in range(2)}
    default = dict(
        name="trial",
        config={"manager": {"type": "base", "episode_num": float("inf")}},
        wanted=3,
        episodes=recorder.episodes,
        steps=recorder.steps,
        unfinished=recorder.unfinished,
        samples=[(0.25, 2), (0.5, 4)],
        wall_time=1.0,
        start_time=0.1,
        stats=stats,
        outcome="complete",
    )
    return RunRecord(**{**default, **more})  # type: ignore[arg-type]


@pytest.fixture(scope="module", autouse=True)
def _fonts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Matplotlib opens its fonts once, and keeps them open for the life of the process: not a leak."""
    draw_nothing(tmp_path_factory.mktemp("fonts") / "nothing.png")


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder(2)
    played(recorder, 1, [np.full(2, v, np.float32) for v in (0, 1, 2)])
    played(recorder, 0, [np.full(2, v, np.float32) for v in (5, 6)], info={"TimeLimit.truncated": True})
    played(recorder, 1, [np.full(2, v, np.float32) for v in (3, 4)], info={"abnormal": True})
    return recorder


def test_rollouts_stand_by_env_and_time(recorder: Recorder, tmp_path: Path) -> None:
    assert rollouts.save(tmp_path / "r.npz", recorder.episodes) == []
    with np.load(tmp_path / "r.npz") as arrays:
        assert arrays["env_id"].tolist() == [0, 1, 1, 1]
        assert arrays["episode_id"].tolist() == [0, 1, 1, 2]
        assert arrays["step"].tolist() == [0, 0, 1, 0]
        assert arrays["obs"][:, 0].tolist() == [5, 0, 1, 3]
        assert arrays["obs"].dtype == np.float32
        assert arrays["action"].tolist() == [0, 0, 1, 0]
        assert arrays["terminated"].tolist() == [False, False, True, False]
        assert arrays["truncated"].tolist() == [True, False, False, True]
        assert arrays["final_obs"][:, 0].tolist() == [6, 2, 4]
        assert arrays["episode_start"].tolist() == [0, 1, 3]
        assert arrays["episode_length"].tolist() == [1, 2, 1]
        assert arrays["episode_return"].tolist() == [1, 2, 1]
        assert arrays["episode_abnormal"].tolist() == [False, False, True]


@pytest.mark.parametrize("said", [True, np.True_, np.array([False, True]), np.ones((1, 1))])
def test_abnormal_may_be_said_by_an_array(said: Any) -> None:
    step = BaseEnvTimestep(np.zeros(1), 0.0, True, {"abnormal": said})
    assert rollouts.is_abnormal(step) is True
    silent = BaseEnvTimestep(np.zeros(1), 0.0, True, {"abnormal": np.zeros_like(said)})
    assert rollouts.is_abnormal(silent) is False


def test_nested_observations_are_arrays_of_their_own(tmp_path: Path) -> None:
    recorder = Recorder(1)
    played(recorder, 0, [{"img": np.zeros((2, 2)), "thing": [None] * n} for n in (1, 2, 3)])
    left_out = rollouts.save(tmp_path / "r.npz", recorder.episodes)
    assert left_out == ["obs/thing", "final_obs/thing"]
    with np.load(tmp_path / "r.npz") as arrays:
        assert arrays["obs/img"].shape == (2, 2, 2)
        assert arrays["final_obs/img"].shape == (1, 2, 2)


def test_a_reward_with_a_shape_keeps_it_and_counts_by_its_sum(tmp_path: Path) -> None:
    recorder = Recorder(1)
    played(recorder, 0, [np.zeros(1)] * 4, reward=np.array([1.0, 2.0], np.float32))
    assert recorder.episodes[0].total == 9.0
    rollouts.save(tmp_path / "r.npz", recorder.episodes)
    with np.load(tmp_path / "r.npz") as arrays:
        assert arrays["reward"].shape == (3, 2)


def test_summary_is_valid_json_and_says_the_numbers(recorder: Recorder, tmp_path: Path) -> None:
    write_json(tmp_path / "summary.json", summary(record_of(recorder)))
    numbers = json.loads((tmp_path / "summary.json").read_text())
    assert numbers["episodes"] == 3
    assert numbers["episodes_abnormal"] == 1
    assert numbers["steps"] == 4
    assert numbers["steps_per_second"] == 4.0
    assert numbers["return"] == {
        "mean": 4 / 3,
        "median": 1.0,
        "min": 1.0,
        "max": 2.0,
        "std": pytest.approx(0.4714, 1e-3),
    }
    assert numbers["episode_env_id"] == [1, 0, 1]
    assert numbers["time_share"] == {"step": 0.25, "reset": 0.25, "wait": 0.5}
    assert numbers["config"]["manager"]["episode_num"] == "inf"
    assert numbers["versions"]["envmgr"]


def test_summary_without_episodes(tmp_path: Path) -> None:
    record = record_of(Recorder(2), stats={}, samples=[], wall_time=0.0, outcome="failed", error="why")
    write_json(tmp_path / "summary.json", summary(record))
    numbers = json.loads((tmp_path / "summary.json").read_text())
    assert numbers["return"]["mean"] is None
    assert numbers["time_share"] == {}
    assert numbers["error"] == "why"


def test_waiting_is_what_is_left_and_never_negative(recorder: Recorder) -> None:
    record = record_of(recorder, wall_time=0.3)
    assert env_times(record)[0] == {"step": 0.25, "reset": 0.25, "wait": 0.0}
    assert sum(time_shares(record).values()) == pytest.approx(1.0)


def test_write_says_what_it_wrote(recorder: Recorder, tmp_path: Path) -> None:
    written = write(record_of(recorder), tmp_path / "runs" / "trial")
    assert [path.name for path in written.files] == ["summary.json", "rollouts.npz", "report.png"]
    assert sorted(p.name for p in (tmp_path / "runs" / "trial").iterdir()) == sorted(
        p.name for p in written.files
    )
    assert (tmp_path / "runs" / "trial" / "report.png").read_bytes().startswith(b"\x89PNG")


def test_without_kept_steps_there_is_no_rollouts_file(tmp_path: Path) -> None:
    recorder = Recorder(1, keep_steps=False)
    played(recorder, 0, [np.zeros(1)] * 3)
    written = write(record_of(recorder), tmp_path)
    assert [path.name for path in written.files] == ["summary.json", "report.png"]


def test_a_picture_can_be_drawn_of_nothing(tmp_path: Path) -> None:
    from envmgr.observe.run_picture import draw

    record = record_of(Recorder(1), stats={}, samples=[], wall_time=0.0)
    draw(record, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 0


def test_the_panels_of_a_picture_are_titled_alike_and_explained(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from envmgr.observe.run_picture import draw

    figures = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *args, **more: (figures.append(self), save(self, *args, **more))
    )
    draw(record_of(recorder), tmp_path / "p.png")
    axes = figures[0].axes
    titles = [t for each in axes for t in each.findobj(Text) if t.get_text() == each.get_title(loc="left")]
    assert titles[2].get_text() == "Where each env's time went"
    assert len({round(title.get_window_extent().y0) for title in titles}) == 1
    legend = axes[2].get_legend()
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["in step", "in reset", "waiting for an action"]
    box, bars_end = legend.get_window_extent(), axes[2].transData.transform((0, 1))[1]
    assert box.y0 >= bars_end, "it hides a bar"
    assert box.x1 <= axes[2].bbox.x1


def test_speed_in_bins_has_the_right_area(recorder: Recorder) -> None:
    from envmgr.observe.run_picture import binned_speed

    record = record_of(recorder, samples=[(k / 100, k) for k in range(1, 100)], steps=100)
    edges, speeds = binned_speed(record)
    assert (speeds * np.diff(edges)).sum() == pytest.approx(100)
    assert len(speeds) == 33


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")

    def half_written() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half_written()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_plain_values() -> None:
    assert plain({1: np.float32(0.5), "a": (float("nan"), float("-inf"), np.arange(2), object)}) == {
        "1": 0.5,
        "a": [None, "-inf", [0, 1], "<class 'object'>"],
    }
