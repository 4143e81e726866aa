"""A watch sees the hooks and the changes of a model."""

import copy

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from molgcn.nn import GCN
from molgcn.training.steps.watch import Watch


def test_a_watch_sees_hooks_wherever_they_are():
    model = GCN(6, 8, 2, 1, backend="pyg")
    optimizer = torch.optim.Adam(model.parameters())
    watch = Watch(model, optimizer)
    for register in (
        lambda: model.register_forward_hook(lambda *_: None),
        lambda: model.convs[0].register_forward_pre_hook(lambda *_: None),
        lambda: model.head.register_full_backward_hook(lambda *_: None),
        lambda: model.head.register_full_backward_pre_hook(lambda *_: None),
        lambda: model.head.weight.register_hook(lambda grad: None),
        lambda: model.head.weight.register_post_accumulate_grad_hook(lambda tensor: None),
        lambda: optimizer.register_step_pre_hook(lambda *_: None),
        lambda: register_module_forward_hook(lambda *_: None),
        lambda: register_optimizer_step_post_hook(lambda *_: None),
    ):
        assert not watch.has_hooks()
        handle = register()
        assert watch.has_hooks()
        handle.remove()
    assert not watch.has_hooks()


def test_a_watch_knows_its_model():
    model = GCN(6, 8, 3, 1, backend="pyg")
    watch = Watch(model)
    before = watch.state()
    assert watch.is_of(model) and watch.is_still_of(model) and watch.state() == before
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    assert watch.state() == before
    model.eval()
    assert watch.state() != before
    model.head = nn.Linear(8, 1)
    assert not watch.is_of(model) and not watch.is_still_of(model)
    assert not watch.is_of(other := GCN(6, 8, 3, 1, backend="pyg")) and not watch.is_still_of(other)
