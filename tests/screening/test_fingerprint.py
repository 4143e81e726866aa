"""Learned fingerprints are the states that a network computes on its way."""

import numpy as np
import pytest
import torch
from predictions import SMILES

from molgcn.config.run import BackendConfig, Config, parse
from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn.model import Model
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.fingerprint import Fingerprints
from molgcn.training.train import train


@pytest.fixture(scope="module")
def deep_run(trained_config, tmp_path_factory):
    """Return a run whose head has hidden layers of 6 and 4, and its folder."""
    model = {**trained_config["model"], "head_channels": [6, 4]}
    values = {**trained_config, "model": model, "training": {"report": False}, "trainer": {**trained_config["trainer"], "max_epochs": 1}}
    return train(parse(Config, values), tmp_path_factory.mktemp("deep"))


def states(run):
    """Return the states before the head and after its hidden layers, computed by PyG's layers, the mean and the head's maps."""
    module = Ensemble.load([run.folder], BackendConfig(name="pyg")).members[0]
    before = []
    module.model.head.register_forward_pre_hook(lambda _, inputs: before.append(inputs[0]))
    with torch.no_grad():
        module.model(PackedMolecules.from_smiles(SMILES, features="qm9").batch(slice(None)))
        first = module.model.head[0](before[0]).relu()
        return before[0].numpy(), first.numpy(), module.model.head[2](first).relu().numpy()


@pytest.mark.parametrize("backend", ["fused", "reference", "pyg"])
def test_each_layer(deep_run, backend):
    ensemble, by_hand = Ensemble.load([deep_run.folder], BackendConfig(name=backend)), states(deep_run)
    for layer, place in ((0, 0), (1, 1), (2, 2), (-1, 2)):
        values = Model(ensemble).fingerprint(SMILES, layer)
        assert values.dtype == np.float32
        assert Fingerprints(ensemble, layer).columns == [f"fp_{number}" for number in range(values.shape[1])]
        np.testing.assert_allclose(values, by_hand[place], rtol=1e-5, atol=1e-5)


def test_the_head_of_the_network_gives_the_predictions_from_them(deep_run):
    ensemble = Ensemble.load([deep_run.folder])
    (module,) = ensemble.members
    last = torch.from_numpy(Model(ensemble).fingerprint(SMILES, -1))
    with torch.no_grad():
        predicted = module.decode(module.model.head[4](last))
    molecules = PackedMolecules.from_smiles(SMILES, features="qm9")
    np.testing.assert_allclose(predicted.numpy(), ensemble.predict(molecules)[0], rtol=1e-5, atol=1e-5)


def test_several_networks_stand_side_by_side(trained_run, deep_run):
    one, other = (Model(Ensemble.load([run.folder])).fingerprint(SMILES) for run in (trained_run, deep_run))
    ensemble = Ensemble.load([trained_run.folder, deep_run.folder])
    np.testing.assert_array_equal(Model(ensemble).fingerprint(SMILES), np.concatenate([one, other], axis=1))
    columns = Fingerprints(ensemble).columns
    assert (columns[0], columns[-1]) == ("fp_0_model_0", "fp_7_model_1")


@pytest.mark.parametrize("layer", [3, -2])
def test_a_layer_that_is_not_there(deep_run, layer):
    with pytest.raises(UserError, match=rf"layer={layer} does not exist: the head has 2 hidden layers"):
        Fingerprints(Ensemble.load([deep_run.folder]), layer)
