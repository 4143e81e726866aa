"""Check that the default tests catch faults: change a line at a time, and see a named test fail.

`make mutations` does it for all of `MUTATIONS`, in a copy of the checkout. `ARGS` may hold numbers or parts of file names.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("molgcn", "cuda", "conf", "data", "tests")


class Mutation(NamedTuple):
    """A fault in one place, and the test that finds it."""

    file: str
    before: str
    after: str
    test: str


MUTATIONS = [
    # a split
    Mutation(
        "molgcn/data/splits/drawn.py",
        "place_groups(groups, in_order",
        "place_groups(np.sort(groups), in_order",
        "tests/data/splits/test_drawn.py::test_groups_stay_together_and_sizes_follow",
    ),
    Mutation(
        "molgcn/data/splits/drawn.py",
        "np.random.default_rng(seed).shuffle(small)",
        "np.random.default_rng(0).shuffle(small)",
        "tests/data/splits/test_drawn.py::test_scaffolds_stay_together",
    ),
    # shares of ranks
    Mutation(
        "molgcn/data/sampler.py",
        "order[read + self.rank :: self.world_size]",
        "order[read + self.rank // 2 :: self.world_size]",
        "tests/data/test_sampler.py::test_ranks_have_disjoint_shares",
    ),
    # a unit
    Mutation(
        "molgcn/data/sources/qm9.py",
        '"gap": ("eV", HARTREE)',
        '"gap": ("eV", 1.0)',
        "tests/data/sources/test_qm9.py::test_units_and_conversion",
    ),
    # a lock
    Mutation(
        "molgcn/data/locks.py",
        "    except Timeout:\n        return False",
        "    except Timeout:\n        return True",
        "tests/data/test_locks.py::test_a_folder_is_claimed_once",
    ),
    # a file that is whole or not there
    Mutation(
        "molgcn/files/whole_file.py",
        "        yield temporary\n        os.replace(temporary, path)\n    finally:",
        "        yield temporary\n    finally:\n        os.replace(temporary, path)",
        "tests/files/test_whole_file.py::test_a_file_that_fails_is_not_there",
    ),
    # what files from strangers may do
    Mutation(
        "molgcn/training/checkpoint_file.py",
        "weights_only=True",
        "weights_only=False",
        "tests/test_safety.py::test_a_malicious_pickle",
    ),
    # formulas
    Mutation(
        "molgcn/metrics/regression.py",
        "self.mean(self.error.square()).sqrt()",
        "self.mean(self.error.square().sqrt())",
        "tests/metrics/test_regression.py::test_equal_to_scipy_and_scikit_learn",
    ),
    Mutation(
        "molgcn/tasks/distributions.py",
        "error.square() / variance + variance.log()",
        "error.square() / variance + variance.sqrt().log()",
        "tests/tasks/test_distributions.py::test_the_loss_is_the_likelihood_of_a_normal_distribution",
    ),
    Mutation(
        "molgcn/training/ema.py",
        "1.0 - self.decay)",
        "self.decay)",
        "tests/training/test_ema.py::test_follows_the_formula_and_copies_buffers",
    ),
    Mutation(
        "molgcn/data/encodings.py",
        "(1 / degree.clamp(min=1))",
        "(1 / (degree + 1))",
        "tests/data/test_encodings.py::test_a_batch_without_encodings_gets_them_from_its_graph",
    ),
    # missing targets
    Mutation(
        "molgcn/ops/masked_mean.py",
        "total / count.clamp(min=1)",
        "total / terms.numel()",
        "tests/ops/test_masked_mean.py::test_terms_of_missing_targets_do_not_count",
    ),
    # bounds
    Mutation(
        "molgcn/domain/distance.py",
        "(size > high)",
        "(size >= high)",
        "tests/domain/test_distance.py::test_what_training_held_is_not_far",
    ),
    Mutation(
        "molgcn/calibration/conformal.py",
        "math.ceil((count + 1) * ",
        "math.ceil(count * ",
        "tests/calibration/test_conformal.py::test_the_threshold_of_nine_scores",
    ),
    # rules of schedules
    Mutation(
        "molgcn/training/optim.py",
        "math.cos(math.pi * min(step / steps, 1.0))",
        "math.cos(math.pi * step / steps)",
        "tests/training/test_optim.py::test_cosine_with_warmup",
    ),
    Mutation(
        "molgcn/training/validation_loop.py",
        " if one.training]",
        "]",
        "tests/training/test_epoch_loop.py::test_a_validation_may_read_a_part_and_leaves_frozen_norms_alone",
    ),
    Mutation(
        "molgcn/training/stopping.py",
        "self.wait_count >= self.patience",
        "self.wait_count > self.patience",
        "tests/training/test_resume.py::test_a_resumed_run_has_the_patience_that_it_is_given",
    ),
    # a stride
    Mutation(
        "molgcn/ops/aggregate_plan.py",
        " or misaligned % (most * _SIZES[dtype])",
        "",
        "tests/ops/test_aggregate_cuda.py::test_how_many_channels_a_thread_reads",
    ),
    # a mask of padding
    Mutation(
        "molgcn/nn/norms.py",
        "without_padding(x - mean, count).square()",
        "(x - mean).square()",
        "tests/nn/test_norms.py::test_real_rows_alone_count",
    ),
    # kernels: a bound of edges, dropout's draws, a correction, a sign of a gradient
    Mutation(
        "cuda/aggregate_rows.cu",
        "if (first + u * EDGES < end) add",
        "if (first + u * EDGES <= end) add",
        "tests/ops/test_aggregate_cuda.py::test_against_float64",
    ),
    Mutation(
        "cuda/philox.cuh",
        "round < 10",
        "round < 9",
        "tests/ops/layer_network/test_rows_cuda.py::test_every_option_in_float64",
    ),
    Mutation(
        "cuda/adam.cu",
        "1.0 - pow(group.beta2, ",
        "1.0 - pow(group.beta1, ",
        "tests/ops/test_adam_cuda.py::test_equals_torch_in_float64",
    ),
    Mutation(
        "cuda/attention_backward.cu",
        "pre[u].at[r].of[v] = of_score * att",
        "pre[u].at[r].of[v] = -of_score * att",
        "tests/ops/test_attention_cuda.py::test_every_case_in_float64",
    ),
    # a plan for more than there is
    Mutation(
        "cuda/gcn_tile_reduce.cuh",
        "blocks = min(int(gridDim.x), p.num_tiles)",
        "blocks = gridDim.x",
        "tests/ops/layer_network/test_planned.py::test_one_launch_for_graph_convolutions",
    ),
]


def main() -> None:
    wanted = sys.argv[1:]
    chosen = [
        (number, one) for number, one in enumerate(MUTATIONS, 1) if not wanted or any(w == str(number) or w in one.file for w in wanted)
    ]
    with TemporaryDirectory() as folder:
        copy = Path(folder)
        _copy_checkout(copy)
        failing = [test for test in dict.fromkeys(one.test for _, one in chosen) if _status(copy, test) != 0]
        if failing:
            sys.exit(f"These tests fail without a mutation: {', '.join(failing)}")
        survivors = []
        for number, one in chosen:
            with _mutated(copy, one):
                status = _status(copy, one.test)
            print(f"{number:2} {one.file}: {one.test} {'fails, as it should' if status == 1 else f'ends with {status}'}", flush=True)
            survivors += [number] if status != 1 else []
    sys.exit(f"No test failed for {survivors} of {len(chosen)} mutations." if survivors else 0)


def _copy_checkout(copy: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for module in ("_cpu", "_launch", "_members"):
        found = importlib.util.find_spec(f"molgcn.{module}")
        if found is not None and found.origin is not None:
            shutil.copy(found.origin, copy / "molgcn")


@contextmanager
def _mutated(copy: Path, mutation: Mutation) -> Iterator[None]:
    path = copy / mutation.file
    text = path.read_text()
    if (times := text.count(mutation.before)) != 1:
        sys.exit(f"{mutation.file} has {mutation.before!r} {times} times, expected once. Bring the mutation up to date.")
    path.write_text(text.replace(mutation.before, mutation.after))
    yield
    path.write_text(text)


def _status(copy: Path, test: str) -> int:
    """Return how pytest ends on a test in the copy: 0 if it passes, 1 if it fails."""
    process = os.fork()  # so that what the tests import is there already
    if process == 0:
        os.chdir(copy)
        sys.meta_path = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]  # they lead to the checkout
        for name in [name for name in sys.modules if name.partition(".")[0] == "molgcn"]:
            del sys.modules[name]
        sys.path.insert(0, str(copy))
        sys.dont_write_bytecode = True
        out = os.open(os.devnull, os.O_WRONLY)
        os.dup2(out, 1), os.dup2(out, 2)
        import pytest

        os._exit(int(pytest.main(["-n0", "-x", "-q", "-p", "no:cacheprovider", test])))
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    for name in ("torch", "lightning", "rdkit.Chem", "pandas", "hydra", "scipy.stats", "sklearn"):
        importlib.import_module(name)
    main()
