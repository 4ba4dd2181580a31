"""Whole runs of rl-offline-policy: real data, a real sandbox, success counted by the host."""

import csv
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness.bare_run import BareRun
from harness.datasets.generate import generate
from harness.datasets.prepare import Ready, ready, verify
from harness.estimate import EVALUATOR_BYTES, estimate
from harness.intake.submission import Submission, accept
from harness.keys import evaluation_seed
from harness.layout import write_datasets
from harness.manifest import ManifestDiffers, make_plan, obey
from harness.numerics import TUNED
from harness.records import Record, TrainingData
from harness.results.report.json_report import build_report, to_json
from harness.results.report.markdown import to_markdown
from harness.task import REPOSITORY, OfflineDataset, Profile, Task, content_hash
from harness.training.evaluator import Acting, Evaluator
from harness.training.offline import Offline
from harness.training.run import EXIT_INFRASTRUCTURE
from harness.training.run import main as worker
from harness.training.workbench import Damaged, Workbench
from harness.verdict import InfrastructureError
from sandbox.guest import numerics
from sandbox.wire import Frame, Kind
from tests.builders import manifest, record
from tests.support import KEY, accepted, conditions, evaluated_here, touchstone, trained, unchecked

TASK = "rl-offline-policy"
MAZE = "pointmaze-medium-navigate-5"
FQL = REPOSITORY / "reference_algorithms" / TASK / "fql.py"

pytestmark = pytest.mark.xdist_group("offline runs")

STANDS_STILL = """
class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.action_dim = action_dim

    def create_policy_networks(self):
        return {"scale": nn.Linear(1, self.action_dim)}

    def compute_actor_loss(self, networks, batch, critic):
        return networks["scale"].weight.square().sum(), {}

    def sample_actions(self, networks, observations, temperature):
        return torch.zeros(len(observations), self.action_dim)
"""

# A policy by hand: from cell to cell of the maze of task 1, along the shortest way. It says nothing
# of learning, and everything of how success is counted.
KNOWS_THE_WAY = """
MAZE = [
    "11111111",
    "10011001",
    "10010001",
    "11000111",
    "10010001",
    "10100101",
    "10001001",
    "11111111",
]
GOAL = (6, 6)


def distances():
    far, waiting = {GOAL: 0}, [GOAL]
    while waiting:
        row, column = waiting.pop(0)
        for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if MAZE[cell[0]][cell[1]] == "0" and cell not in far:
                far[cell] = far[(row, column)] + 1
                waiting.append(cell)
    return far


class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.action_dim = action_dim
        self.far = distances()

    def create_policy_networks(self):
        return {"unused": nn.Linear(1, 1)}

    def compute_actor_loss(self, networks, batch, critic):
        return networks["unused"].weight.square().sum(), {}

    def sample_actions(self, networks, observations, temperature):
        rows = [self.one(x, y) for x, y in observations[:, :2].tolist()]
        return torch.tensor(rows)

    def one(self, x, y):
        row, column = round((y + 4) / 4), round((x + 4) / 4)
        around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        best = min(
            (cell for cell in [*around, (row, column)] if cell in self.far), key=self.far.get,
            default=GOAL,
        )
        dx, dy = best[1] * 4 - 4 - x, best[0] * 4 - 4 - y
        length = max(math.hypot(dx, dy), 1e-6)
        return [dx / length, dy / length]
"""


def task() -> Task:
    return Task.load(TASK)


def maze() -> OfflineDataset:
    environment = task().environments[MAZE]
    assert isinstance(environment, OfflineDataset)
    return environment


def profile(**changes: object) -> Profile:
    """`smoke`, shorter: two steps, of which the last export counts."""
    short = {
        "total_timesteps": 2,
        "eval_freq": 2,
        "eval_episodes": 1,
        "final_episodes": 2,
        "scored_exports": (),
    }
    return Profile.model_validate(task().profile("smoke").model_dump() | short | changes)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the maze's data are, made once."""
    made = tmp_path_factory.mktemp("datasets")
    generate(maze(), made, lambda line: None, lambda line: None, workers=1)
    return made


@pytest.fixture(scope="module")
def data(root: Path) -> Ready:
    return ready([maze()], root, "make datasets")[MAZE]


def run(
    submission: Submission, directory: Path, data: Ready, **changes: object
) -> tuple[Record, Workbench]:
    record, bench = evaluated_here(submission, profile(**changes), directory, TASK, data.path)
    assert record is not None
    return record, bench


# --- what a run's result is -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(
    tmp_path_factory: pytest.TempPathFactory, data: Ready
) -> tuple[Record, Workbench, Path]:
    """FQL, two of whose exports count."""
    directory = tmp_path_factory.mktemp("several")
    submission = accept(task(), FQL)
    record, bench = run(
        submission, directory, data, total_timesteps=4, eval_freq=2, scored_exports=(2, 4)
    )
    return record, bench, directory


def test_the_exports_that_count_are_all_played_from_starts_of_their_own(
    several: tuple[Record, Workbench, Path],
) -> None:
    record, bench, _ = several
    assert record.verdict.kind == "scored", record.verdict
    assert record.final is not None
    assert [each.step for each in record.final.by_export] == [2, 4]
    assert len(record.final.returns) == len(record.final.lengths) == 4
    assert record.final.mean == np.mean([each.mean for each in record.final.by_export])
    with np.load(bench.trace) as trace:
        assert trace["step"].tolist() == [2, 2, 4, 4]
        assert trace["seed_index"].tolist() == [0, 1, 2, 3]
        assert trace["actions"].shape == (sum(record.final.lengths), 2)


def replayed(index: int, actions: np.ndarray) -> np.ndarray:
    """Where those actions lead from the start of that number."""
    judged = Offline().evaluated(maze(), second=False)
    obs = judged.reset(evaluation_seed(KEY, TASK, 1, MAZE, 42, "final", index))
    for action in actions:
        obs, _ = judged.step(action)
    return obs


def test_each_export_was_played_from_the_starts_that_its_trace_names(
    tmp_path: Path, data: Ready
) -> None:
    # Its actions tell where it stood: they are the place itself, scaled down.
    shows = STANDS_STILL.replace(
        "return torch.zeros(len(observations), self.action_dim)", "return observations / 100"
    )
    _, bench = run(
        accepted(shows, tmp_path, TASK),
        tmp_path / "run",
        data,
        total_timesteps=4,
        eval_freq=2,
        scored_exports=(2, 4),
    )
    with np.load(bench.trace) as trace:
        firsts = trace["actions"][np.cumsum(trace["lengths"]) - trace["lengths"]]
        named = trace["seed_index"].tolist()
    assert named == [0, 1, 2, 3]
    for index, first in zip(named, firsts, strict=True):
        assert np.allclose(first, replayed(index, np.empty((0, 2))) / 100)
    assert len({tuple(each) for each in firsts.tolist()}) == 4


def test_their_artefacts_are_named_by_hash_and_kept(
    several: tuple[Record, Workbench, Path],
) -> None:
    record, bench, _ = several
    assert record.training.exports == (0, 2, 4)
    assert list(record.training.scored_sha256) == [2, 4]
    for step, digest in record.training.scored_sha256.items():
        assert hashlib.sha256(bench.read_export(step)).hexdigest() == digest
    assert record.training.scored_sha256[4] == record.training.policy_sha256


def test_an_artefact_that_counts_and_was_changed_is_noticed(
    several: tuple[Record, Workbench, Path], tmp_path: Path
) -> None:
    _, bench, _ = several
    there = Workbench(tmp_path / "attempt-1")
    for name in ("exports", "training.json"):
        there.directory.mkdir(exist_ok=True)
        before = bench.directory / name
        if before.is_dir():
            there.exports.mkdir()
            for path in before.iterdir():
                (there.exports / path.name).write_bytes(path.read_bytes())
        else:
            (there.directory / name).write_bytes(before.read_bytes())
    path = there.exports / "0000000002.policy"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(Damaged, match="artefact of step 2"):
        there.read_training()


def test_the_same_policies_judged_again_have_the_same_successes(
    several: tuple[Record, Workbench, Path],
) -> None:
    record, bench, directory = several
    (bench.directory / "final.json").unlink()
    evaluator = Evaluator(directory, KEY)
    while evaluator.work():
        pass
    again = bench.read_final()
    assert again is not None
    assert again.evaluation is not None
    assert record.final is not None
    assert again.evaluation.returns == record.final.returns
    assert again.evaluation.lengths == record.final.lengths
    assert again.trace_sha256 == record.trace_sha256


def test_success_is_what_is_counted_in_percent(tmp_path: Path, data: Ready) -> None:
    record, _ = run(accepted(KNOWS_THE_WAY, tmp_path, TASK), tmp_path / "run", data)
    assert record.final is not None
    assert record.final.returns == (100.0, 100.0)
    assert record.final.mean == 100.0
    # It ends at the success: the way is about 12 cells of 4 units, at 0.2 units a step.
    assert all(150 < length < 500 for length in record.final.lengths)
    assert record.final.settings["success_timing"] == "post"


def test_a_policy_that_never_succeeds_has_a_legal_score_of_0(tmp_path: Path, data: Ready) -> None:
    record, _ = run(accepted(STANDS_STILL, tmp_path, TASK), tmp_path / "run", data)
    assert record.verdict.kind == "scored"
    assert record.final is not None
    assert record.final.returns == (0.0, 0.0)
    assert record.final.lengths == (1000, 1000)


def test_an_episode_is_the_same_whichever_environment_of_the_pool_plays_it() -> None:
    family, environment = Offline(), maze()
    starts = family.starts("final", 3, lambda _, index: 1000 + index)

    class Drifts:
        """Answers as a policy would that looks at nothing but where it is."""

        def ask(self, kind: Kind, payload: bytes, expected: set[Kind]) -> Frame:
            places_ = np.frombuffer(payload, np.float32).reshape(-1, 2)
            return Frame(Kind.ACTIONS, np.cos(places_).astype(np.float32).tobytes())

    def played(slots: int) -> list[np.ndarray]:
        pool = [family.evaluated(environment, second=False) for _ in range(slots)]
        return Acting(Drifts(), pool, environment).play(starts).actions

    for alone, together in zip(played(1), played(3), strict=True):
        assert np.array_equal(alone, together)


def test_a_robot_arms_episode_follows_from_its_seed_whatever_was_played_before() -> None:
    cubes = task().environments["cube-single-play-100"]
    fresh, used = (Offline().evaluated(cubes, second=False) for _ in range(2))
    used.reset(5)
    for _ in range(20):
        used.step(np.ones(5, dtype=np.float32))
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 5)).astype(np.float32)
    for seed in (3, 4):
        one, other = fresh.reset(seed), used.reset(seed)
        assert np.array_equal(one, other)
        for action in actions:
            assert np.array_equal(fresh.step(action)[0], used.step(action)[0])
    # A reset shakes the scene with actions of its own; those are seeded too.
    assert fresh._made.unwrapped.action_space is fresh._made.unwrapped.action_space


def test_judging_leaves_numpys_global_generator_as_it_was() -> None:
    judged = Offline().evaluated(maze(), second=False)
    np.random.seed(7)
    before = np.random.get_state()
    first = judged.reset(3)
    judged.step(np.ones(2, dtype=np.float32))
    after = np.random.get_state()
    assert before[0] == after[0]
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]
    np.random.seed(8)
    assert np.array_equal(judged.reset(3), first)
    assert not np.array_equal(judged.reset(4), first)


# --- what a learner is given ----------------------------------------------------------------------


def test_training_is_the_same_bits_in_the_sandbox_and_in_one_process(
    several: tuple[Record, Workbench, Path], data: Ready
) -> None:
    _, bench, _ = several
    short = profile(total_timesteps=4, eval_freq=2)
    bare = BareRun(task(), short, maze(), 42, TUNED, data.path)
    try:
        bare.train(accept(task(), FQL).source.decode(), lambda line: None)
    finally:
        numerics.install({})  # this process's, as the next test expects them
    assert bare.policy == bench.read_export(4)


def test_other_seeds_see_other_batches(tmp_path: Path, data: Ready) -> None:
    source = accept(task(), FQL)
    policies = set()
    for seed in (42, 43):
        _, bench = trained(
            source, profile(seeds=(seed,)), tmp_path / str(seed), task=TASK, dataset=data.path
        )
        policies.add(bench.read_export(2))
    assert len(policies) == 2


def test_metrics_of_the_critic_and_of_the_policy_are_logged(tmp_path: Path, data: Ready) -> None:
    often = unchecked(f"METRICS_EVERY = 1\n{FQL.read_text()}", TASK)
    _, bench = trained(often, profile(), tmp_path, task=TASK, dataset=data.path)
    with bench.metrics.open(newline="") as file:
        logged = {row["name"] for row in csv.DictReader(file)}
    assert {"critic_loss", "q", "actor_loss", "flow_loss", "distill_loss", "q_loss"} == logged


def test_a_learner_cannot_write_to_its_data(tmp_path: Path, data: Ready) -> None:
    theirs = tmp_path / "rows.npy"
    shutil.copyfile(data.path, theirs)
    theirs.chmod(0o666)  # whatever its mode says: the mount is read-only
    before = hashlib.sha256(theirs.read_bytes()).hexdigest()
    writes = f'open("/run/data", "rb").read(8)\nopen("/run/data", "r+b")\n{STANDS_STILL}'
    training, _ = trained(unchecked(writes, TASK), profile(), tmp_path, task=TASK, dataset=theirs)
    assert training.verdict is not None
    assert training.verdict.kind == "crashed"
    assert "Read-only file system" in training.verdict.detail
    assert hashlib.sha256(theirs.read_bytes()).hexdigest() == before


def test_nothing_that_a_learner_sees_of_its_data_names_them(tmp_path: Path, data: Ready) -> None:
    looks = f"""
import os

told = str(dict(os.environ))
for name in ("mountinfo", "cmdline", "maps"):
    told += open("/proc/self/" + name).read()
assert "/run/data" in told
assert not [name for name in ("maze", "cube", "navigate", "ogbench") if name in told.lower()], told
{STANDS_STILL}"""
    training, _ = trained(unchecked(looks, TASK), profile(), tmp_path, task=TASK, dataset=data.path)
    assert training.verdict is None, training.verdict


TWICE = """
once = DatasetEnvironment.draw


def twice(env):
    once(env)
    return once(env)


DatasetEnvironment.draw = twice
"""
ACTS = """
from sandbox.wire import Kind

DatasetEnvironment.draw = lambda env: env._step(Kind.ACTION, bytes(8))
"""


@pytest.mark.parametrize(("trick", "said"), [(TWICE, "DRAW"), (ACTS, "ACTION")])
def test_a_step_more_than_the_profile_has_or_an_action_ends_the_run(
    tmp_path: Path, data: Ready, trick: str, said: str
) -> None:
    short = profile(total_timesteps=3, eval_freq=3)
    region = unchecked(STANDS_STILL + trick, TASK)
    training, _ = trained(region, short, tmp_path, task=TASK, dataset=data.path)
    assert training.verdict is not None
    assert training.verdict.kind == "protocol-violation"
    assert said in training.verdict.cause
    assert training.steps <= 3


def test_data_that_were_damaged_since_the_start_are_no_fault_of_the_submission(
    tmp_path: Path, data: Ready, several: tuple[Record, Workbench, Path]
) -> None:
    _, _, directory = several
    theirs = tmp_path / data.path.name
    shutil.copyfile(data.path, theirs)
    shutil.copyfile(data.path.with_suffix(".json"), theirs.with_suffix(".json"))
    verify(theirs)
    with theirs.open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"?")
    evaluation = tmp_path / "evaluation"
    shutil.copytree(directory, evaluation, ignore=shutil.ignore_patterns("runs"))
    write_datasets(evaluation, {MAZE: theirs})
    assert worker(evaluation, f"{MAZE}-s42", 1) == EXIT_INFRASTRUCTURE
    assert not list(evaluation.glob("runs/*/attempt-1/training.json"))


def test_data_that_are_gone_are_no_fault_of_the_submission(tmp_path: Path) -> None:
    for dataset in (None, tmp_path / "nowhere.npy"):
        with pytest.raises(InfrastructureError):
            trained(accept(task(), FQL), profile(), tmp_path, task=TASK, dataset=dataset)


# --- what an evaluation holds to ------------------------------------------------------------------


def test_a_resume_with_other_data_is_refused_and_names_them() -> None:
    same, before, now = "0" * 64, "a" * 64, "b" * 64
    begun = manifest("fql").model_copy(update={"datasets": {"first": same, "second": before}})
    resumed = begun.model_copy(update={"datasets": {"first": same, "second": now}})
    with pytest.raises(ManifestDiffers, match=r"datasets: begun with .'second': 'aaa") as told:
        obey(begun, resumed, finished=False)
    assert "first" not in str(told.value)
    obey(begun, begun, finished=False)
    obey(begun, resumed, finished=True)  # which trains nothing any more


def test_other_tasks_have_the_hashes_that_they_had_before_there_were_exports_that_count() -> None:
    other = Task.load("rl-offpolicy-continuous").profile("smoke")
    assert other.scored_exports == ()
    without = other.model_dump(mode="json")
    del without["scored_exports"]
    several = other.model_copy(update={"scored_exports": (other.total_timesteps,)})
    assert content_hash(other) != content_hash(several)

    class Before(Profile):
        def model_dump(self, **options: object) -> dict[str, object]:  # type: ignore[override]
            return without

    assert content_hash(other) == content_hash(Before.model_validate(other.model_dump()))


@pytest.mark.parametrize(
    ("exports", "problem"),
    [
        ((100, 50), "ascending"),
        ((50, 100), "nothing is exported at step 50"),
        ((0,), "the last export"),
    ],
)
def test_exports_that_cannot_count_are_refused(exports: tuple[int, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        profile(total_timesteps=100, eval_freq=100, scored_exports=exports)


def test_an_estimate_counts_the_meshes_of_robot_arms(tmp_path: Path) -> None:
    cubes = next(
        each
        for each in task().environments.values()
        if isinstance(each, OfflineDataset) and each.simulator.startswith("cube")
    )
    small = estimate(make_plan(conditions(profile(), task=TASK)), 1, 1, tmp_path)
    arms = profile(environments=(cubes.id,))
    large = estimate(make_plan(conditions(arms, task=TASK)), 1, 1, tmp_path)
    assert cubes.evaluation_bytes > 100 << 20
    assert small.memory_bytes < EVALUATOR_BYTES + (1 << 30)
    assert large.memory_bytes - small.memory_bytes > 9 * cubes.evaluation_bytes


# --- as a user sees it ----------------------------------------------------------------------------


def smoke(tmp_path: Path, datasets: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """`touchstone eval` of FQL in `smoke`, with a store of its own."""
    store = tmp_path / "store"
    return touchstone(
        *("eval", TASK, FQL, "--profile", "smoke"),
        *("--store", store, "--datasets", datasets, *more),
    )


def test_eval_without_data_says_which_files_are_missing_and_what_makes_them(
    tmp_path: Path,
) -> None:
    done = smoke(tmp_path, tmp_path / "nothing")
    assert done.returncode == 5
    assert "pointmaze-medium-navigate-v0.npz" in done.stderr
    assert "make datasets TASK=rl-offline-policy PROFILE=smoke" in done.stderr
    assert not list((tmp_path / "store").glob("*/*/*/manifest.json"))


def test_smoke_runs_on_data_made_here_and_its_report_says_so(tmp_path: Path, root: Path) -> None:
    done = smoke(tmp_path, root)
    assert done.returncode == 0, done.stderr
    [report] = (tmp_path / "store").glob("*/*/*/report.md")
    text = report.read_text()
    assert "success, %" in text
    assert "mean return" not in text
    assert "made here: seed 0, 5 episodes" in text
    assert "compares with nothing that is published" in text
    digest = json.loads((report.parent / "manifest.json").read_text())["datasets"][MAZE]
    assert digest in text

    # What has finished can be read again where the data are gone; nothing else can begin.
    other = smoke(tmp_path, tmp_path / "nothing", "--name", "another")
    assert other.returncode == 5
    again = smoke(tmp_path, tmp_path / "nothing")
    assert again.returncode == 0, again.stderr


def test_a_submitter_sees_nothing_of_held_out_data() -> None:
    told = manifest("fql", visible=["seen"], heldout=["hidden-dataset"], seeds=(42,))
    digests = {"seen": "7" * 64, "hidden-dataset": "9" * 64}
    told = told.model_copy(update={"datasets": digests})
    records = [
        record(told, name, 42, 50.0, training={"data": learned_from(f"{name}-v0", digest)})
        for name, digest in digests.items()
    ]
    for for_submitter, shown in ((False, True), (True, False)):
        report = build_report(told, records, lambda each: "record.json", for_submitter)
        for text in (to_json(report), to_markdown(report)):
            assert "seen-v0" in text
            assert "7" * 64 in text
            assert ("hidden-dataset" in text) is shown
            assert ("9" * 64 in text) is shown


def learned_from(stem: str, digest: str) -> TrainingData:
    return TrainingData(
        dataset=stem, transitions=5, sha256=digest, generator_seed=None, episodes=None
    )


def test_run_here_trains_on_the_same_data(tmp_path: Path, root: Path) -> None:
    done = touchstone("run", accepted_path(tmp_path), f"ENV={MAZE}", "STEPS=3", f"DATASETS={root}")
    assert done.returncode == 0, done.stderr
    assert "3 gradient steps" in done.stdout
    assert "success rate in %" in done.stdout


def accepted_path(tmp_path: Path) -> Path:
    path = tmp_path / "knows_the_way.py"
    path.write_text(KNOWS_THE_WAY)
    return path
