"""The disk prefix cache and the spill file under kill -9, bit flips and another model.

tests/tools/disk_writer.c puts and gets blocks until it is killed; a second run of it reads every block that is
served and knows what its bytes must be."""

import os
import pathlib
import random
import stat
import subprocess

import pytest

TOOL = pathlib.Path(os.environ.get("MILLRACE_BUILD", "build")) / "tests" / "disk_writer"
MAX_BYTES = 32 << 20  # about 50 of the 400 blocks that the writer has
N_KILLS = 40


def block_files(folder):
    return sorted(path for path in (folder / "kv" / "blocks").iterdir() if path.name.endswith(".kv"))


def disk_use(folder):
    return sum(path.stat().st_blocks * 512 for path in (folder / "kv" / "blocks").iterdir() if path.name != "secret")


def read(folder, model=0):
    """(blocks that were served with the right bytes, files that were found bad)."""
    done = subprocess.run([TOOL, folder, str(MAX_BYTES), "read", str(model)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[0::2] == ["served", "bad", "bytes"], done.stdout
    assert int(words[5]) <= MAX_BYTES
    return int(words[1]), int(words[3])


def write_and_kill(folder, seed, n_answers):
    """Kills the writer once it has had that many answers; it has gone on writing meanwhile."""
    writer = subprocess.Popen([TOOL, folder, str(MAX_BYTES), "write", str(seed)], stdout=subprocess.PIPE)
    try:
        n = 0
        while n < n_answers:
            dots = os.read(writer.stdout.fileno(), 1 << 16)
            assert dots, "the writer does not run, or found bytes that were never put"
            n += len(dots)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()


@pytest.fixture(name="filled")
def fixture_filled(tmp_path):
    write_and_kill(tmp_path, 1, 100)
    return tmp_path


def test_after_kill_9_every_block_that_is_served_is_right_and_the_cap_holds(tmp_path):
    rng = random.Random(20240)
    n_served_most = n_half_written = 0
    for kill in range(N_KILLS):
        write_and_kill(tmp_path, rng.randrange(1 << 60), rng.randrange(1, 40))
        assert disk_use(tmp_path) <= MAX_BYTES
        n_half_written += (tmp_path / "kv" / "blocks" / "writing.tmp").exists()
        if kill % 2:  # every other time the next writer starts on what was left
            n_served, n_bad = read(tmp_path)
            assert n_bad == 0, "rename leaves whole files only"
            assert n_served == len(block_files(tmp_path))
            assert not (tmp_path / "kv" / "blocks" / "writing.tmp").exists()
            n_served_most = max(n_served_most, n_served)
    assert n_served_most > 30
    print(f"{N_KILLS} kills, {n_half_written} within a write, at most {n_served_most} blocks served")


def test_kill_9_leaves_no_spill_file(filled):
    assert sorted(path.name for path in filled.iterdir()) == ["kv"]
    assert sorted(path.name for path in (filled / "kv").iterdir()) == ["blocks"]


def test_a_bit_flipped_at_a_random_place_is_never_served(filled):
    rng = random.Random(7)
    for _ in range(10):
        files = block_files(filled)
        n_served, n_bad = read(filled)
        assert (n_served, n_bad) == (len(files), 0)
        flipped = rng.sample(files, 3)
        for path in flipped:
            data = bytearray(path.read_bytes())
            bit = rng.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
        assert read(filled) == (n_served - 3, 3)
        assert not any(path.exists() for path in flipped)


def test_another_model_is_served_nothing(filled):
    n_served, _ = read(filled)
    assert n_served > 0
    assert read(filled, model=12345) == (0, 0)
    assert read(filled) == (n_served, 0)


def test_everything_is_private(filled):
    for path in [filled / "kv", filled / "kv" / "blocks"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (filled / "kv" / "blocks").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
