"""The translations for torch's ONNX exporter are right."""

import numpy as np
import pytest
import torch
from torch import nn

from molgcn.nn.exported import TRANSLATIONS


class Order(nn.Module):
    def __init__(self, descending):
        super().__init__()
        self.descending = descending

    def forward(self, keys):
        return torch.sort(keys, stable=True, descending=self.descending)


@pytest.mark.parametrize("descending", [False, True])
def test_a_stable_sort(tmp_path, descending):
    onnxruntime = pytest.importorskip("onnxruntime")
    shapes = {"keys": {0: torch.export.Dim("count")}}
    example = (torch.tensor([2, 1, 2]),)
    program = torch.onnx.export(
        Order(descending), example, dynamo=True, dynamic_shapes=shapes, custom_translation_table=TRANSLATIONS, verbose=False
    )
    program.save(tmp_path / "sort.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "sort.onnx")
    for count in (0, 1, 7, 5000):
        keys = torch.randint(2**61, 2**61 + 7, (count,), generator=torch.Generator().manual_seed(0))
        values, places = session.run(None, {session.get_inputs()[0].name: keys.numpy()})
        expected = torch.sort(keys, stable=True, descending=descending)
        assert np.array_equal(values, expected.values) and np.array_equal(places, expected.indices)
