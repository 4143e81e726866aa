"""Options that schedules change lie on the device while a step is captured, and are put back."""

from __future__ import annotations

import pytest
import torch

from molgcn.training import ClippedAdam
from molgcn.training.steps.device_options import DeviceOptions

CPU = torch.device("cpu")


def test_rates_are_put_back_and_followed():
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer = torch.optim.Adam([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.2}], lr=0.1)
    options = DeviceOptions(optimizer, CPU)
    for rate in (0.1, 0.05):
        optimizer.param_groups[0]["lr"] = rate
        options.write()
        with options.in_place():
            rates = [group["lr"] for group in optimizer.param_groups]
            assert all(group["capturable"] is True for group in optimizer.param_groups)
        assert torch.stack(rates).tolist() == pytest.approx([rate, 0.2])
        assert [group["lr"] for group in optimizer.param_groups] == [rate, 0.2]
        assert not any(group["capturable"] for group in optimizer.param_groups)


def test_they_are_put_back_after_an_error():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], 0.1)
    with pytest.raises(RuntimeError, match="broken"), DeviceOptions(optimizer, CPU).in_place():
        raise RuntimeError("broken")
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_only_other_options_are_constants():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))], 0.1)
    with_rates, without = DeviceOptions(optimizer, CPU), DeviceOptions(optimizer, CPU, rates=False)
    before = with_rates.constants(), without.constants()
    optimizer.param_groups[0]["lr"] = 0.2
    assert with_rates.constants() == before[0] and without.constants() != before[1]
    optimizer.param_groups[0]["betas"] = (0.8, 0.999)
    assert with_rates.constants() != before[0]


def test_a_rate_in_a_tensor_on_the_cpu_is_copied():
    rate = torch.tensor(0.1)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))], rate, foreach=False)
    options = DeviceOptions(optimizer, CPU)
    rate.mul_(0.5)
    options.write()
    with options.in_place():
        assert optimizer.param_groups[0]["lr"] is not rate
        assert optimizer.param_groups[0]["lr"] == 0.05
    assert optimizer.param_groups[0]["lr"] is rate


@pytest.mark.gpu
def test_kernels_of_ours_read_the_momentum():
    parameter = torch.nn.Parameter(torch.ones(3, device="cuda"))
    optimizer = ClippedAdam([parameter], None, decoupled_weight_decay=False, lr=0.1)
    options = DeviceOptions(optimizer, parameter.device)
    before = options.constants()
    optimizer.param_groups[0]["betas"] = (0.8, 0.999)
    assert options.constants() == before
    options.write()
    with options.in_place():
        assert optimizer.param_groups[0]["betas"][0] == 0.8
    optimizer.param_groups[0]["betas"] = (0.8, 0.99)
    assert options.constants() != before
