"""Data of offline tasks: made here or fetched, refused where they are not what the task says, and
laid out for learners."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import datasets_command
from harness.cli import ExitStatus
from harness.datasets import checksums, places
from harness.datasets.demonstrations import demonstrator
from harness.datasets.fetch import Fetcher
from harness.datasets.generate import generate
from harness.datasets.places import DatasetError, Files
from harness.datasets.prepare import Ready, ready
from harness.task import Generator, OfflineDataset, Task
from sandbox import rows
from tests.support import TASK, small_profile, touchstone
from tests.test_make import COMBINED, Door

ogbench = pytest.importorskip("ogbench", reason="not installed on Python 3.13")

# One process makes the data that all of these read.
pytestmark = pytest.mark.xdist_group("datasets")

REPOSITORY = Path(__file__).parent.parent
COMMAND = "make datasets TASK=some-task PROFILE=quick"
TABLE = Task.load("rl-offline-policy").environments["pointmaze-medium-navigate-5"].model_dump()


def dataset(kind: str, episodes: int = 3, seed: int = 7, **changes: Any) -> OfflineDataset:
    """A table of the kinds that can be made here, for as many episodes; one more to validate."""
    name, simulator, observation_dim, action_dim = {
        "point": ("pointmaze-medium-navigate-v0", "pointmaze-medium-singletask-v0", 2, 2),
        "large": ("pointmaze-large-navigate-v0", "pointmaze-large-singletask-v0", 2, 2),
        "cube": ("cube-single-play-v0", "cube-single-singletask-v0", 28, 5),
    }[kind]
    table = TABLE | {
        "id": kind,
        "dataset": name,
        "simulator": simulator,
        "observation_dim": observation_dim,
        "action_dim": action_dim,
        "transitions": 1000 * episodes,
        "generator": Generator(seed=seed, episodes=episodes, validation_episodes=1),
    }
    return OfflineDataset.model_validate(table | changes)


POINT = dataset("point")
CUBE = dataset("cube", episodes=1)
OFFICIAL = dataset("point", generator=None)


def silent(line: str) -> None:
    pass


def make(environment: OfflineDataset, root: Path, workers: int = 1) -> Files:
    generate(environment, root, silent, silent, workers)
    return places.files(environment, root)


def prepare(environment: OfflineDataset, root: Path) -> Ready:
    return ready([environment], root, COMMAND, silent)[environment.id]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the data of POINT, of neighbours of it, and of CUBE. Not to be changed.

    One environment has played all episodes of a kind, training first.
    """
    root = tmp_path_factory.mktemp("datasets")
    for environment in (POINT, dataset("point", seed=8), dataset("large"), CUBE):
        make(environment, root)
    prepare(POINT, root)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(made, tmp_path / "datasets"))


def as_official(environment: OfflineDataset, made: Path, directory: Path) -> Files:
    """The same arrays as a published file has them: compressed, and without a word on their
    origin."""
    directory.mkdir(parents=True, exist_ok=True)
    published = Files(*(directory / path.name for path in places.files(environment, made)))
    for path, to in zip(places.files(environment, made), published, strict=True):
        arrays = dict(np.load(path))
        del arrays["provenance"]
        np.savez_compressed(to, **arrays)
    return published


# ---------------------------------------------------------------- made here


def test_a_made_file_has_the_layout_of_an_official_one(made: Path) -> None:
    for path, episodes in zip(places.files(POINT, made), (3, 1), strict=True):
        arrays = np.load(path)
        length = 1001 * episodes
        assert {
            name: (arrays[name].dtype, arrays[name].shape)
            for name in ("observations", "actions", "qpos", "qvel", "terminals")
        } == {
            **dict.fromkeys(("observations", "actions", "qpos", "qvel"), (np.float32, (length, 2))),
            "terminals": (np.bool_, (length,)),
        }
        assert np.flatnonzero(arrays["terminals"]).tolist() == [
            1001 * episode + 1000 for episode in range(episodes)
        ]
        assert np.abs(arrays["actions"]).max() == 1  # noise of 0.5, clipped


@pytest.mark.parametrize(("environment", "seen"), [(POINT, slice(0, 2)), (CUBE, slice(0, 6))])
def test_positions_are_those_before_the_action(
    made: Path, environment: OfflineDataset, seen: slice
) -> None:
    """A point sees where it is, an arm the angles of its joints."""
    arrays = np.load(places.files(environment, made).training)

    assert np.array_equal(arrays["observations"][:, seen], arrays["qpos"][:, seen])


def test_the_same_numbers_make_the_same_bytes_however_many_processes(
    made: Path, tmp_path: Path
) -> None:
    np.random.seed(99)

    again = make(POINT, tmp_path, workers=2)

    for path, first in zip(again, places.files(POINT, made), strict=True):
        assert path.read_bytes() == first.read_bytes()


@pytest.mark.parametrize("kind", ["point", "cube"])
def test_an_episode_is_its_seeds_whatever_was_played_before(made: Path, kind: str) -> None:
    environment = {"point": POINT, "cube": CUBE}[kind]
    np.random.seed(5)

    fresh = demonstrator(environment.dataset)
    validation = fresh.episode(np.random.SeedSequence(7, spawn_key=(1, 0)))
    after = np.random.random()

    arrays = np.load(places.files(environment, made).validation)
    assert np.array_equal(validation.observations, arrays["observations"])
    assert np.array_equal(validation.actions, arrays["actions"])
    np.random.seed(5)
    assert after == np.random.random()  # the caller's numbers go on as if nothing had been played


def test_no_two_episodes_are_alike(made: Path) -> None:
    starts = [
        tuple(observation)
        for environment in (POINT, dataset("point", seed=8))
        for path in places.files(environment, made)
        for observation in np.load(path)["observations"][::1001]
    ]
    assert len(set(starts)) == len(starts) == 8


def test_a_walker_gets_about_in_the_maze(made: Path) -> None:
    """From goal to goal: in 3,000 steps of at most 0.28 it sees most of the 26 cells of 4 x 4."""
    places_seen = np.load(places.files(POINT, made).training)["observations"]

    assert len(np.unique((places_seen / 4).round(), axis=0)) > 18


def test_a_mazes_model_is_not_left_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    demonstrator(POINT.dataset).episode(np.random.SeedSequence(0))

    assert not list(scratch.iterdir())


def test_what_needs_a_trained_walker_cannot_be_made(tmp_path: Path) -> None:
    ant = dataset("point", dataset="antmaze-medium-navigate-v0")

    with pytest.raises(DatasetError, match="antmaze-medium-navigate-v0 cannot be made") as refused:
        make(ant, tmp_path)

    assert "cube-single-play-v0, pointmaze-medium-navigate-v0" in str(refused.value)


def test_sha256sum_reads_the_checksums(made: Path) -> None:
    training, validation = places.files(POINT, made)

    subprocess.run(
        ["sha256sum", "-c", *(f"{path.name}.sha256" for path in (training, validation))],
        cwd=training.parent,
        check=True,
        capture_output=True,
    )


# ---------------------------------------------------------------- prepared


@pytest.mark.filterwarnings("ignore::UserWarning")  # OGBench's, about the bounds of actions
@pytest.mark.parametrize("environment", [POINT, CUBE], ids=["point", "cube"])
def test_learners_map_what_ogbenchs_own_loader_gives(
    root: Path, environment: OfflineDataset
) -> None:
    stem, _, version = environment.dataset.rpartition("-")
    directory = places.files(environment, root).training.parent

    _, loaded, _ = ogbench.make_env_and_datasets(
        f"{stem}-singletask-{version}", dataset_dir=str(directory)
    )

    laid = np.load(prepare(environment, root).path, mmap_mode="r")
    columns = rows.columns(environment.observation_dim, environment.action_dim)
    assert laid.dtype == np.float32
    assert laid.shape == (
        environment.transitions,
        rows.row_length(environment.observation_dim, environment.action_dim),
    )
    assert np.array_equal(laid[:, columns.observations], loaded["observations"])
    assert np.array_equal(laid[:, columns.next_observations], loaded["next_observations"])
    assert np.array_equal(laid[:, columns.reward][:, 0], loaded["rewards"])
    assert np.array_equal(laid[:, columns.mask][:, 0], loaded["masks"])
    inside = np.abs(loaded["actions"]) < 0.9999
    assert np.array_equal(laid[:, columns.actions][inside], loaded["actions"][inside])
    assert np.abs(laid[:, columns.actions]).max() == np.float32(1 - 1e-5)


def test_the_next_action_is_the_trajectorys_own_to_its_end(made: Path) -> None:
    raw = np.load(places.files(POINT, made).training)["actions"]
    laid = np.load(prepare(POINT, made).path)
    columns = rows.columns(2, 2)

    bound = np.float32(1 - 1e-5)
    for trajectory in range(3):
        first = 1001 * trajectory  # in the file; a trajectory's last row is no transition
        ours = laid[1000 * trajectory :][:1000]
        assert np.array_equal(
            ours[:, columns.next_actions], np.clip(raw[first + 1 : first + 1001], -bound, bound)
        )
        assert np.array_equal(ours[:-1, columns.next_actions], ours[1:, columns.actions])


def test_a_mask_is_0_where_the_task_is_solved_and_1_at_a_trajectorys_end(made: Path) -> None:
    """Task 1 of the medium maze: within 1.0 of the centre of the cell in line 6, column 6."""
    data = prepare(POINT, made)
    laid = np.load(data.path)
    columns = rows.columns(2, 2)
    solved = np.hypot(*(laid[:, columns.observations] - 20).T) <= 1.0

    assert 0 < solved.sum() < 300
    assert np.array_equal(laid[:, columns.mask][:, 0], np.where(solved, 0.0, 1.0))
    assert np.array_equal(laid[:, columns.reward][:, 0], np.where(solved, 0.0, -1.0))
    assert laid[999::1000, columns.mask].tolist() == [[1.0]] * 3
    assert data.statistics.model_dump() == {
        "transitions": 3000,
        "trajectories": 3,
        "success_rows": solved.sum(),
        "reward_min": -1.0,
        "reward_max": 0.0,
        "observation_min": pytest.approx(laid[:, columns.observations].min()),
        "observation_max": pytest.approx(laid[:, columns.observations].max()),
    }


def test_preparing_leaves_the_callers_random_numbers_alone(root: Path) -> None:
    shutil.rmtree(root / "prepared")
    np.random.seed(5)
    expected = np.random.random()
    np.random.seed(5)

    prepare(POINT, root)

    assert np.random.random() == expected


def test_a_prepared_file_is_made_once_and_is_for_everyone_to_read(root: Path) -> None:
    shutil.rmtree(root / "prepared")
    said: list[str] = []
    before = os.umask(0o077)
    try:
        first = ready([POINT], root, COMMAND, said.append)["point"]
    finally:
        os.umask(before)
    made_at = first.path.stat().st_mtime_ns

    again = ready([POINT], root, COMMAND, said.append)["point"]

    assert said == ["point: checking its files, laying out rows for learners"]
    assert again == first
    assert first.path.stat().st_mtime_ns == made_at
    assert first.path.stat().st_mode & 0o777 == 0o644
    assert first.sha256 == checksums.sha256_of(places.files(POINT, root).training)


def test_a_prepared_files_name_says_nothing_of_the_environment(made: Path) -> None:
    name = prepare(POINT, made).path.name

    assert len(name) == 64 + len(".npy")
    assert int(name.removesuffix(".npy"), 16)


@pytest.mark.parametrize("spoil", ["cut", "flip", "note"])
def test_a_damaged_prepared_file_is_made_again(root: Path, spoil: str) -> None:
    path = prepare(POINT, root).path
    right = path.read_bytes()
    if spoil == "cut":
        path.write_bytes(right[:-1])
    elif spoil == "flip":
        flip(path)
    else:
        path.with_suffix(".json").write_text("{}")

    assert prepare(POINT, root).path == path
    assert path.read_bytes() == right


# ---------------------------------------------------------------- refused


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def unseen(path: Path) -> Path:
    """Without the checksum beside it, as if it had been put there by hand."""
    checksums.sidecar(path).unlink()
    return path


def rewrite(path: Path, **changes: Callable[[Any], Any]) -> None:
    arrays = dict(np.load(path))
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    np.savez(unseen(path), **arrays)


def replace(files: Files, others: Files) -> None:
    for path, other in zip(files, others, strict=True):
        shutil.copyfile(other, path)
        shutil.copyfile(checksums.sidecar(other), checksums.sidecar(path))


def exchange(files: Files) -> None:
    content = files.training.read_bytes()
    unseen(files.training).write_bytes(files.validation.read_bytes())
    unseen(files.validation).write_bytes(content)


def not_a_number(array: Any) -> Any:
    array[5, 0] = np.nan
    return array


def without_last(array: Any) -> Any:
    array[-1] = False
    return array


def twice_at_the_end(array: Any) -> Any:
    array[-2] = True
    return array


SPOILED: dict[str, tuple[Callable[[Files, Path], None], str, str]] = {
    "training missing": (
        lambda files, root: files.training.unlink(),
        "training",
        "not there yet",
    ),
    "validation missing": (
        lambda files, root: files.validation.unlink(),
        "validation",
        "not there yet",
    ),
    "a byte flipped": (
        lambda files, root: flip(files.training),
        "training",
        "damaged or exchanged",
    ),
    "a byte flipped, unseen": (
        lambda files, root: flip(unseen(files.validation)),
        "validation",
        "Bad CRC-32",
    ),
    "truncated": (
        lambda files, root: os.truncate(files.training, 20_000),
        "training",
        "damaged or exchanged",
    ),
    "truncated, unseen": (
        lambda files, root: os.truncate(unseen(files.training), 20_000),
        "training",
        "truncated, or no .npz at all",
    ),
    "empty": (
        lambda files, root: os.truncate(unseen(files.training), 0),
        "training",
        "truncated, or no .npz at all",
    ),
    "the other seed's": (
        lambda files, root: replace(files, places.files(dataset("point", seed=8), root)),
        "validation",
        '"seed": 8',
    ),
    "a cube's": (
        lambda files, root: shutil.copyfile(
            places.files(CUBE, root).training, unseen(files.training)
        ),
        "training",
        "its actions have 5 numbers each, the task says 2",
    ),
    "exchanged": (lambda files, root: exchange(files), "validation", "another file"),
    "training twice": (
        lambda files, root: shutil.copyfile(files.training, unseen(files.validation)),
        "validation",
        "the training file once more",
    ),
    "without positions": (
        lambda files, root: rewrite(files.training, qpos=lambda array: array[:-1]),
        "training",
        "its qpos have shape (3002, 2), beside 3003 terminals",
    ),
    "wrong type": (
        lambda files, root: rewrite(files.training, actions=lambda array: array.astype(float)),
        "training",
        "its actions are float64, not float32",
    ),
    "not finite": (
        lambda files, root: rewrite(files.training, observations=not_a_number),
        "training",
        "some of its observations are not finite",
    ),
    "without an end": (
        lambda files, root: rewrite(files.training, terminals=without_last),
        "training",
        "its last row does not end a trajectory",
    ),
    "a lone row": (
        lambda files, root: rewrite(files.validation, terminals=twice_at_the_end),
        "validation",
        "a single row",
    ),
    "one trajectory less": (
        lambda files, root: rewrite(
            files.training,
            **dict.fromkeys(
                ("observations", "actions", "qpos", "qvel", "terminals"),
                lambda array: array[:2002],
            ),
        ),
        "training",
        "it has 2,000 transitions, the task says 3,000",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_what_is_not_the_tasks_data_is_refused_with_path_reason_and_advice(
    root: Path, case: str
) -> None:
    """Also where the rows of the right data are prepared already."""
    spoil, part, reason = SPOILED[case]
    files = places.files(POINT, root)
    spoil(files, root)

    with pytest.raises(DatasetError) as refused:
        prepare(POINT, root)

    message = str(refused.value)
    assert str(getattr(files, part)) in message
    assert reason in message
    assert f"un: {COMMAND}" in message


def test_a_checksum_that_was_moved_with_its_file_gives_it_away(root: Path) -> None:
    files, others = places.files(POINT, root), places.files(dataset("large"), root)
    replace(files, others)

    with pytest.raises(DatasetError, match="of another file, pointmaze-large-navigate"):
        prepare(POINT, root)


@pytest.mark.parametrize("field", ["sha256", "validation_sha256"])
def test_the_tasks_own_checksum_must_hold(root: Path, field: str) -> None:
    right = checksums.sha256_of(
        getattr(places.files(POINT, root), {"sha256": "training"}.get(field, "validation"))
    )

    prepare(dataset("point", **{field: right}), root)
    with pytest.raises(DatasetError, match="not the file that the task names"):
        prepare(dataset("point", **{field: "0" * 64}), root)


def test_an_official_file_of_another_maze_is_refused(made: Path, tmp_path: Path) -> None:
    """Shapes and lengths are those of all mazes."""
    large = as_official(dataset("large"), made, tmp_path)
    for path, wanted in zip(large, places.files(OFFICIAL, tmp_path), strict=True):
        path.rename(wanted)

    with pytest.raises(DatasetError, match=r"of another maze: \d+% of its places are in walls"):
        prepare(OFFICIAL, tmp_path)


def test_a_file_made_here_does_not_pass_for_the_official_one(made: Path, tmp_path: Path) -> None:
    for path in places.files(POINT, made):
        shutil.copy(path, tmp_path)

    with pytest.raises(DatasetError, match="made on some machine"):
        prepare(OFFICIAL, tmp_path)


def test_a_file_put_there_by_hand_is_kept_to_from_then_on(made: Path, tmp_path: Path) -> None:
    files = as_official(POINT, made, tmp_path)
    prepare(OFFICIAL, tmp_path)
    assert checksums.sidecar(files.training).exists()

    arrays = dict(np.load(files.training))
    arrays["actions"] *= 0.5
    np.savez_compressed(files.training, **arrays)

    with pytest.raises(DatasetError, match="damaged or exchanged"):
        prepare(OFFICIAL, tmp_path)


def test_a_simulator_that_does_not_exist_is_named(root: Path) -> None:
    with pytest.raises(DatasetError, match="OGBench has no environment pointmaze-tiny-v0"):
        prepare(dataset("point", simulator="pointmaze-tiny-v0"), root)


def test_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as refused:
        ready([POINT, CUBE], tmp_path, COMMAND, silent)

    for path in (*places.files(POINT, tmp_path), *places.files(CUBE, tmp_path)):
        assert str(path) in str(refused.value)


# ---------------------------------------------------------------- several at once


_BOTH = """
import sys
from pathlib import Path
from tests.test_datasets import POINT, generate, ready, silent
root = Path(sys.argv[1])
generate(POINT, root, print, lambda line: print(line, flush=True), workers=1)
print(ready([POINT], root, "", print)["point"].sha256)
"""


def test_two_processes_at_once_do_the_work_once(made: Path, tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", _BOTH, str(tmp_path)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0].splitlines() for process in both]

    assert [process.returncode for process in both] == [0, 0]
    together = [line for lines in said for line in lines]
    assert sum("3 of 3 episodes" in line for line in together) == 1
    assert sum("laying out rows" in line for line in together) == 1
    assert said[0][-1] == said[1][-1] == prepare(POINT, made).sha256


def test_what_a_killed_process_left_is_cleared_away(root: Path) -> None:
    training = places.files(POINT, root).training
    unseen(training).unlink()
    left = training.with_name(f".{training.name}.99999.tmp")
    left.write_bytes(b"half of it")

    make(POINT, root)

    assert not left.exists()
    prepare(POINT, root)


# ---------------------------------------------------------------- fetched


class Mirror:
    """A server of files on the loopback, with the faults that servers have."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[tuple[str, str | None]] = []
        """Path and Range of every request."""
        self.ranges = True
        self.cuts = 0
        """Answers yet to come that stop halfway."""
        self.longer = 0
        """Bytes that it promises beyond the file."""
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/ogbench/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers["Range"]
        self.asked.append((request.path, wanted))
        content = self.files.get(request.path.rpartition("/")[2])
        if content is None:
            request.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if not self.ranges:
            start = 0
        promised = len(content) + self.longer
        if start and start >= promised:
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{promised}")
            request.end_headers()
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{promised - 1}/{promised}")
        request.send_header("Content-Length", str(promised - start))
        request.end_headers()
        rest = content[start:]
        if self.cuts:
            self.cuts -= 1
            rest = rest[: len(rest) // 2]
        request.wfile.write(rest)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def published(made: Path, tmp_path: Path) -> dict[str, bytes]:
    """The official files of OFFICIAL, by name."""
    return {path.name: path.read_bytes() for path in as_official(POINT, made, tmp_path / "theirs")}


@pytest.fixture
def mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[dict[str, bytes]], Mirror]]:
    """Starts mirrors, and nobody has files in OGBench's own directory."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with contextlib.ExitStack() as running:

        def start(files: dict[str, bytes]) -> Mirror:
            mirror = Mirror(files)
            running.callback(mirror.close)
            return mirror

        yield start


def fetch(root: Path, *addresses: str, environment: OfflineDataset = OFFICIAL) -> list[str]:
    said: list[str] = []
    Fetcher(root, addresses, said.append, silent).fetch(environment)
    return said


Start = Callable[[dict[str, bytes]], Mirror]


def assert_there(root: Path, published: dict[str, bytes]) -> None:
    for name, content in published.items():
        assert (root / name).read_bytes() == content
    assert not list(root.glob("*.part"))
    prepare(OFFICIAL, root)


def test_official_files_come_from_a_mirror_and_lie_where_ogbenchs_loader_looks(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    mirror = mirrors(published)

    said = fetch(tmp_path / "root", mirror.address)

    assert_there(tmp_path / "root", published)
    assert said == [f"{name}: from {mirror.address.rstrip('/')}" for name in published]
    assert [path for path, _ in mirror.asked] == [f"/ogbench/{name}" for name in published]
    assert fetch(tmp_path / "root", mirror.address) == []
    assert len(mirror.asked) == 2


def test_a_cut_connection_is_taken_up_where_it_broke(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    mirror = mirrors(published)
    mirror.cuts = 2

    fetch(tmp_path / "root", mirror.address)

    assert_there(tmp_path / "root", published)
    half = len(published[f"{OFFICIAL.dataset}.npz"]) // 2
    assert mirror.asked[0][1] is None
    assert mirror.asked[1][1] == f"bytes={half}-"
    assert len(mirror.asked) == 4


def test_what_one_mirror_began_another_one_ends(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    name = f"{OFFICIAL.dataset}.npz"
    root = tmp_path / "root"
    root.mkdir()
    (root / f"{name}.part").write_bytes(published[name][:1000])
    mirror = mirrors(published)

    fetch(root, mirror.address)

    assert_there(root, published)
    assert mirror.asked[0][1] == "bytes=1000-"


def test_a_server_without_ranges_is_asked_from_the_start_again(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    mirror = mirrors(published)
    mirror.ranges, mirror.cuts = False, 1

    fetch(tmp_path / "root", mirror.address)

    assert_there(tmp_path / "root", published)


def test_a_download_that_was_whole_but_not_in_place_is_not_repeated(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    name = f"{OFFICIAL.dataset}.npz"
    root = tmp_path / "root"
    root.mkdir()
    (root / f"{name}.part").write_bytes(published[name])

    fetch(root, mirrors(published).address)

    assert_there(root, published)


@pytest.mark.parametrize("length", [1000, 10_000_000])
def test_the_beginning_of_another_file_is_thrown_away(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path, length: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / f"{OFFICIAL.dataset}.npz.part").write_bytes(b"x" * length)

    fetch(root, mirrors(published).address)

    assert_there(root, published)


def test_a_mirror_that_fails_leaves_it_to_the_next(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    gone, page, right = (
        mirrors({}),
        mirrors(dict.fromkeys(published, b"<html>")),
        mirrors(published),
    )
    silent_one = mirrors({})
    silent_one.close()

    fetch(tmp_path / "root", silent_one.address, gone.address, page.address, right.address)

    assert_there(tmp_path / "root", published)
    assert len(gone.asked) == len(page.asked) == 2


def test_where_nothing_can_be_had_it_says_what_to_put_where(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    name, other = published
    root = tmp_path / "root"
    gone, short, wrong = (mirrors(each) for each in ({}, published, published))
    short.longer = 5
    wrong.files = dict.fromkeys(published, b"no data")
    closed = mirrors({})
    closed.close()

    with pytest.raises(DatasetError) as refused:
        fetch(root, *(each.address for each in (closed, gone, short, wrong)))

    message = str(refused.value)
    assert f"{name} and {other}: not to be had" in message
    assert f"{closed.address}{name}: [Errno 111] Connection refused" in message
    assert f"{gone.address}{name}: HTTP 404 Not Found" in message
    length = len(published[name])
    assert f"{short.address}{name}: {length:,} bytes came, it has {length + 5:,}" in message
    assert f"{wrong.address}{name}: truncated, or no .npz at all" in message
    assert str(tmp_path / "home" / ".ogbench" / "data") in message
    assert f"into\n    {root}/\n" in message
    assert "run the same command again" in message
    assert not list(root.glob("*.npz"))


def test_what_was_put_there_by_hand_is_all_that_is_needed(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    for name, content in published.items():
        (tmp_path / name).write_bytes(content)

    assert fetch(tmp_path) == []
    prepare(OFFICIAL, tmp_path)


def test_a_file_that_is_not_the_one_the_task_names_is_not_let_in(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    named = dataset("point", generator=None, sha256="0" * 64)

    with pytest.raises(DatasetError, match=f"the task says {'0' * 64}"):
        fetch(tmp_path / "root", mirrors(published).address, environment=named)

    assert not (tmp_path / "root" / f"{OFFICIAL.dataset}.npz").exists()
    assert not (tmp_path / "root" / f"{OFFICIAL.dataset}.npz.part").exists()


def test_ogbenchs_own_directory_is_looked_into_first(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    theirs = tmp_path / "home" / ".ogbench" / "data"
    theirs.mkdir(parents=True)
    for name, content in published.items():
        (theirs / name).write_bytes(content)

    said = fetch(tmp_path / "root")

    assert said == [f"{name}: copied from {theirs}" for name in published]
    assert_there(tmp_path / "root", published)


def test_a_damaged_file_in_ogbenchs_directory_is_passed_over(
    mirrors: Start, published: dict[str, bytes], tmp_path: Path
) -> None:
    theirs = tmp_path / "home" / ".ogbench" / "data"
    theirs.mkdir(parents=True)
    (theirs / f"{OFFICIAL.dataset}.npz").write_bytes(b"half a fi")

    fetch(tmp_path / "root", mirrors(published).address)

    assert_there(tmp_path / "root", published)


# ---------------------------------------------------------------- the command


def an_offline_task(*environments: OfflineDataset, mirrors: tuple[str, ...] = ()) -> Task:
    profile = small_profile(*(each.id for each in environments))
    return Task.load(TASK).model_copy(
        update={
            "environments": {each.id: each for each in environments},
            "profiles": {"smoke": profile},
            "mirrors": mirrors,
        }
    )


def command(task: Task, root: Path) -> ExitStatus:
    return datasets_command.run(task, task.profile("smoke"), None, "", root)


def test_the_command_makes_checks_prepares_and_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = an_offline_task(POINT)

    assert command(task, tmp_path) == ExitStatus.SCORED
    first = capsys.readouterr()
    assert first.err == ""
    begun, *_ = first.out.splitlines()
    assert begun == "point: to be made here, 3 and 1 episodes, in about 1 min"
    data = prepare(POINT, tmp_path)
    successes = data.statistics.success_rows
    told = (
        "point: in place\n"
        f"    transitions: 3,000; trajectories: 3; success rows: {successes}\n"
        "    rewards: -1 to 0; observations: "
    )
    assert told in first.out
    assert str(data.path) in first.out

    assert command(task, tmp_path) == ExitStatus.SCORED
    again = capsys.readouterr().out
    assert again.startswith(told)
    assert len(again.splitlines()) == 4


def test_no_success_row_is_told_as_legal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = dataset("point", episodes=1, seed=0)
    assert command(an_offline_task(idle), tmp_path) == ExitStatus.SCORED

    out = capsys.readouterr().out
    assert "transitions: 1,000; trajectories: 1; success rows: 0\n" in out
    assert "no success row is legal, but then nothing in the data tells the task" in out


def test_what_cannot_be_had_does_not_keep_the_others_from_being_made(
    root: Path, capsys: pytest.CaptureFixture[str], mirrors: Start
) -> None:
    official = dataset("large", id="official", generator=None)

    twice = official.model_copy(update={"id": "its-second-task"})
    status = command(an_offline_task(official, twice, POINT), root)

    assert status == ExitStatus.INFRASTRUCTURE
    said = capsys.readouterr()
    assert said.err.count("touchstone: pointmaze-large-navigate-v0.npz and") == 1
    assert "it names none" in said.err
    assert "official: to be fetched into" in said.out
    assert "point: in place" in said.out


def test_a_task_without_datasets_has_nothing_to_do(tmp_path: Path) -> None:
    done = touchstone("datasets", TASK, "--profile", "quick", "--datasets", tmp_path / "root")

    assert done.returncode == 0
    assert done.stdout == f"{TASK}, quick, has no datasets: there is nothing to do\n"
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-task"], "no task 'no-such-task'"),
        ([TASK, "--profile", "fast"], "no profile 'fast'"),
        ([TASK, "--heldout", "missing.toml"], "missing.toml"),
    ],
)
def test_a_mistake_in_the_command_exits_2_with_one_line(arguments: list[str], words: str) -> None:
    done = touchstone("datasets", *arguments)

    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_advice_is_what_one_types(tmp_path: Path) -> None:
    root = tmp_path / "my data"

    assert places.command("t", "quick") == "make datasets TASK=t PROFILE=quick"
    assert (
        places.command("t", "quick", root, "own.toml")
        == f"make datasets TASK=t PROFILE=quick HELDOUT=own.toml DATASETS='{root}'"
    )


def test_make_datasets_needs_a_task_and_runs_nothing_that_a_value_says(tmp_path: Path) -> None:
    door = Door(tmp_path)

    missing = door.make("datasets")
    assert "make datasets needs TASK=" in missing.stderr
    for setting in ("TASK", "PROFILE", "HELDOUT", "DATASETS"):
        settings = {"TASK": TASK} | {setting: COMBINED}
        done = door.make("datasets", *(f"{name}={value}" for name, value in settings.items()))
        assert done.returncode == (0 if setting == "DATASETS" else 2)
    assert not door.trace.exists()


def test_help_and_other_commands_import_nothing_of_this() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, json, harness.cli\n"
            "print(json.dumps([m for m in ('numpy', 'ogbench', 'gymnasium') if m in sys.modules]))",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == []


def test_checking_imports_no_simulator(root: Path) -> None:
    """An evaluation whose data are in place begins without OGBench."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, pathlib\n"
            "from harness.datasets.prepare import ready\n"
            "from harness.task import OfflineDataset\n"
            "table = OfflineDataset.model_validate_json(sys.argv[1])\n"
            "print(*ready([table], pathlib.Path(sys.argv[2]), '', print))\n"
            "assert not {'ogbench', 'mujoco', 'gymnasium'} & set(sys.modules)\n",
            POINT.model_dump_json(),
            str(root),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "point\n"
