"""How much memory there is: the machine's, or less by the control groups of a container."""

from types import SimpleNamespace

import psutil
import pytest

from envmgr import cgroups
from envmgr.errors import ShmError
from envmgr.memory import budget

MIB = 1 << 20
UNLIMITED_V1 = 0x7FFFFFFFFFFFF000


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 1000 MiB free and a control group file system to write into."""
    root, own = tmp_path / "sys" / "fs" / "cgroup", tmp_path / "proc" / "self" / "cgroup"
    root.mkdir(parents=True)
    own.parent.mkdir(parents=True)
    own.write_text("0::/\n")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000 * MIB))

    def write(path, **files):
        (root / path).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / path / name.replace("__", ".")).write_text(f"{text}\n")

    return SimpleNamespace(write=write, own=own)


def v2(limit, usage, inactive=0):
    stat = f"anon 1\nfile 2\ninactive_file {inactive}\nactive_file 7"
    return {"memory__max": limit, "memory__current": usage, "memory__stat": stat}


def v1(limit, usage, inactive=0):
    stat = f"cache 1\ninactive_file 5\ntotal_inactive_file {inactive}"
    return {"memory__limit_in_bytes": limit, "memory__usage_in_bytes": usage, "memory__stat": stat}


def test_without_control_groups_it_is_what_the_machine_has(system):
    assert budget.available_bytes() == 1000 * MIB
    system.own.unlink()
    assert budget.available_bytes() == 1000 * MIB


def test_the_real_system_answers():
    assert 0 < budget.available_bytes() <= psutil.virtual_memory().total
    assert budget.temp_bytes() >= 0


@pytest.mark.case("S03")
@pytest.mark.parametrize(("form", "path"), [(v2, ""), (v1, "memory")])
def test_the_limit_of_a_container_counts(system, form, path):
    system.write(path, **form(300 * MIB, 100 * MIB))
    assert budget.available_bytes() == 200 * MIB


@pytest.mark.parametrize(("form", "path"), [(v2, ""), (v1, "memory")])
def test_cache_that_can_be_given_back_is_free(system, form, path):
    system.write(path, **form(300 * MIB, 290 * MIB, inactive=50 * MIB))
    assert budget.available_bytes() == 60 * MIB


def test_usage_beyond_the_limit_is_nothing_free(system):
    system.write("", **v2(100 * MIB, 120 * MIB))
    assert budget.available_bytes() == 0


@pytest.mark.parametrize(("form", "path", "limit"), [(v2, "", "max"), (v1, "memory", UNLIMITED_V1)])
def test_no_limit_is_no_limit(system, form, path, limit):
    system.write(path, **form(limit, 100 * MIB))
    assert budget.available_bytes() == 1000 * MIB


def test_a_limit_above_what_the_machine_has_changes_nothing(system):
    system.write("", **v2(9000 * MIB, 0))
    assert budget.available_bytes() == 1000 * MIB


def test_the_tightest_group_on_the_way_up_counts(system):
    system.own.write_text("0::/user.slice/job/step\n")
    system.write("user.slice", **v2(400 * MIB, 350 * MIB))
    system.write("user.slice/job", **v2("max", 1))
    system.write("user.slice/job/step", **v2(200 * MIB, 0))
    system.write("user.slice/other", **v2(1, 1))
    assert budget.available_bytes() == 50 * MIB


def test_the_group_of_version_1_is_the_memory_controllers(system):
    system.own.write_text("12:cpu,cpuacct:/elsewhere\n5:memory:/docker/abc\n0::/\n")
    system.write("memory/docker/abc", **v1(80 * MIB, 30 * MIB))
    system.write("memory/elsewhere", **v1(1, 1))
    assert budget.available_bytes() == 50 * MIB


def test_a_group_seen_from_inside_a_container_falls_back_to_the_root(system):
    system.own.write_text("0::/../../docker/of-the-host\n")
    system.write("", **v2(64 * MIB, 0))
    assert budget.available_bytes() == 64 * MIB


@pytest.mark.parametrize("stat", ["", "inactive_file\n", "inactive_file many\n", "nothing of use\n"])
def test_statistics_that_cannot_be_read_count_as_no_cache(system, stat):
    system.write("", **{**v2(300 * MIB, 100 * MIB), "memory__stat": stat})
    assert budget.available_bytes() == 200 * MIB


def test_an_odd_line_about_the_own_group_is_passed_over(system):
    system.own.write_text("what is this\n\n0::/job\n")
    system.write("job", **v2(64 * MIB, 0))
    assert budget.available_bytes() == 64 * MIB


@pytest.mark.case("S03")
def test_require_says_how_much_is_needed_how_much_there_is_and_what_to_do(system):
    system.write("", **v2(64 * MIB, 0))
    budget.require(64 * MIB, "the arena")
    with pytest.raises(ShmError) as caught:
        budget.require(128 * 4 * 84 * 84 * 4 * 8, "the arena")
    message = str(caught.value)
    assert message.startswith("the arena needs 110.2 MiB of shared memory, 64.0 MiB are free.")
    for advice in ("fewer envs", "uint8", "--memory", "--shm-size", "TMPDIR"):
        assert advice in message
    assert isinstance(caught.value, OSError)


def test_require_takes_a_number_of_free_bytes(system):
    budget.require(10, "x", free=10)
    with pytest.raises(ShmError, match="11 bytes of shared memory, 10 bytes are free"):
        budget.require(11, "x", free=10)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (64 << 30, "64.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_sizes_as_a_person_reads_them(nbytes, text):
    assert budget.readable(nbytes) == text
