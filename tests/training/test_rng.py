import io
import random

import numpy as np
import torch

from molgcn.training.checkpoint import rng_state, set_rng_state


def test_state_survives_a_file_without_pickle():
    random.gauss(0, 1)
    np.random.standard_normal()
    buffer = io.BytesIO()
    torch.save(rng_state(), buffer)
    expected = [random.random(), random.gauss(0, 1), np.random.standard_normal(3).tolist(), torch.rand(3).tolist()]
    buffer.seek(0)
    set_rng_state(torch.load(buffer, weights_only=True))
    assert [random.random(), random.gauss(0, 1), np.random.standard_normal(3).tolist(), torch.rand(3).tolist()] == expected
