import shlex
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from molgcn.config.overrides import quote_texts, values_of
from molgcn.config.run import BackendConfig
from molgcn.errors import UserError
from molgcn.training.members import write_members
from molgcn.training.restore import choose_device, find_checkpoint, load_module, require_features, run_folder


@pytest.fixture
def altered(trained_run, tmp_path):
    """Return a function that writes a changed copy of the run's checkpoint."""

    def make(change):
        checkpoint = torch.load(trained_run.folder / "checkpoints" / "best.ckpt", weights_only=True)
        change(checkpoint)
        torch.save(checkpoint, tmp_path / "altered.ckpt")
        return tmp_path / "altered.ckpt"

    return make


def test_everything_comes_from_the_file(trained_run, tmp_path):
    module = load_module(trained_run.folder)
    assert not module.training
    assert module.target_names == ["logp", "tpsa"]
    assert module.target_units == ["", "A^2"]
    assert module.features == "qm9"
    assert module.model.num_layers == 3
    saved = torch.load(trained_run.folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    for key, value in module.state_dict().items():
        assert torch.equal(value, saved[key]), key


@pytest.mark.parametrize("name", ["pyg", "fused"])
def test_the_backend_is_chosen_here(trained_run, name):
    assert load_module(trained_run.folder, BackendConfig(name=name)).model.backend.name == name


def test_which_file_a_folder_means(trained_run, tmp_path):
    best = trained_run.folder / "checkpoints" / "best.ckpt"
    assert find_checkpoint(trained_run.folder) == find_checkpoint(best.parent) == find_checkpoint(best) == best
    assert run_folder(best) == trained_run.folder
    (tmp_path / "last.ckpt").write_bytes(best.read_bytes())
    assert find_checkpoint(tmp_path) == tmp_path / "last.ckpt"  # a run without validation has no best.ckpt
    assert run_folder(tmp_path / "last.ckpt") is None


@pytest.mark.parametrize("name", ["run", "a run (1), $x"])
def test_the_advised_training_of_a_run_of_several_is_taken(trained_run, tmp_path, name):
    """A cross-validation of ensembles, whose first training has not come to a checkpoint yet."""
    folder = tmp_path / name
    for fold in ("fold_0", "fold_1"):
        (folder / fold).mkdir(parents=True)
        write_members(folder / fold, ["member_0", "member_1"])
    write_members(folder, ["fold_0", "fold_1"])
    with pytest.raises(UserError, match=r"a run of 4 trainings. Continue it first: "):
        find_checkpoint(folder, "ckpt_path")
    (folder / "fold_0" / "member_1").mkdir()
    best = folder / "fold_0" / "member_1" / "best.ckpt"
    best.write_bytes((trained_run.folder / "checkpoints" / "best.ckpt").read_bytes())
    for one in (folder, folder / "fold_0"):
        with pytest.raises(UserError, match=r"trainings\. Name one of them, as in ") as error:
            find_checkpoint(one, "ckpt_path")
        (advice,) = shlex.split(str(error.value).partition(", as in ")[2].removesuffix("."))
        assert find_checkpoint(values_of("ckpt_path", quote_texts([advice]))[0]) == best


def test_a_checkpoint_without_features(altered):
    def change(checkpoint):
        checkpoint["molgcn"]["features"] = None

    path = altered(change)
    with pytest.raises(UserError, match=r"altered.ckpt was trained on graphs that were not computed from SMILES"):
        require_features(load_module(path), path)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda c: c["molgcn"].update(features="__import__"), "no features named '__import__'"),
        (lambda c: c["molgcn"].update(features="general"), "11 features per atom, but features=general has 43"),
        (lambda c: c["molgcn"].update(features_version=[1]), r"version \[1\] of features=qm9"),
        (lambda c: c["molgcn"].update(trained_on={"elements": ["C"]}), "does not say how it was trained"),
        (lambda c: c["molgcn"].update(config=3), "does not say how it was trained"),
        (lambda c: c["molgcn"].update(target_units=[]), "does not say how it was trained"),
        (lambda c: c["molgcn"].pop("in_channels"), "does not say how it was trained"),
        (lambda c: c["molgcn"]["config"]["model"].update(name="os.system"), "model.name='os.system' is not valid"),
        (lambda c: c["molgcn"]["config"]["model"].update(_target_="os.system"), "model._target_ is not a known key"),
        (lambda c: c["molgcn"]["config"]["model"].update(num_layers=5), "do not belong to the architecture"),
        (lambda c: c["state_dict"].pop("model.head.0.weight", c["state_dict"].pop("model.head.weight", None)), "do not belong"),
        (lambda c: c.pop("state_dict"), "holds no weights"),
        (lambda c: c.pop("molgcn"), "was not written by molgcn"),
    ],
)
def test_a_checkpoint_that_was_tampered_with_is_refused_in_words(altered, change, what):
    path = altered(change)
    with pytest.raises(UserError, match=what) as error:
        load_module(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_checkpoint(tmp_path):
    (tmp_path / "x.ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match="not a readable checkpoint"):
        load_module(tmp_path / "x.ckpt")


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu0", "meta", ""):
        with pytest.raises(UserError, match="Expected auto, cpu"):
            choose_device(name)
    with pytest.raises(UserError, match="CUDA GPUs"):
        choose_device("cuda:77")


ABSURD = [None, True, -1, 0, 10**9, 10**30, 0.5, float("nan"), float("inf"), "", "x", [], [3], {}, {"a": {"b": [1]}}, [["x"]]]


def places(value, path=()):
    """Yield the paths of all values within nested dicts."""
    yield path
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from places(item, (*path, key))


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_absurd_description_is_read_or_refused_in_words(trained_run, tmp_path, data):
    checkpoint = torch.load(trained_run.folder / "checkpoints" / "best.ckpt", weights_only=True)
    *inner, key = data.draw(st.sampled_from(sorted(path for path in places(checkpoint["molgcn"]) if path)))
    place = checkpoint["molgcn"]
    for name in inner:
        place = place[name]
    place[key] = data.draw(st.sampled_from(ABSURD))
    torch.save(checkpoint, tmp_path / "altered.ckpt")
    with suppress(UserError):
        load_module(tmp_path / "altered.ckpt")


@pytest.mark.parametrize("key", ["num_layers", "hidden_channels", "head_layers"])
def test_sizes_beyond_the_memory_are_refused_at_once(altered, key):
    with pytest.raises(UserError, match="do not belong to the architecture"):
        load_module(altered(lambda checkpoint: checkpoint["molgcn"]["config"]["model"].update({key: 10**8})))
