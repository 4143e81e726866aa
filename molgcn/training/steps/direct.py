"""Training steps on a CPU by direct calls of the operators and the optimiser's kernel: no autograd, nothing looked up twice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.profilers import PassThroughProfiler
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer

from molgcn.data.batch import GraphBatch
from molgcn.data.slot_batch import SlotBatch
from molgcn.nn import fused_call
from molgcn.ops.bound_network import BoundNetwork
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.philox import dropout_seed
from molgcn.training.steps.heads import head_of
from molgcn.training.steps.watch import Watch

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet
    from molgcn.training.module import MoleculeModule


class DirectStep:
    """Takes training steps by direct calls of the network's forward and backward, with the results of autograd bit for bit.

    The first step of a run in which all weights learn is taken plainly, so that the optimiser's state exists.
    """

    num_kernels: int | None = None

    def __init__(self, module: MoleculeModule, optimizer: Optimizer) -> None:
        self.module = module
        self.optimizer = optimizer
        self.watch = Watch(module.model, optimizer)
        self._parameters = self.watch.parameters
        self._warm = False
        self._made_of: list[Any] = []

    @staticmethod
    def why_not(module: MoleculeModule, optimizer: Optimizer, batch: Any) -> str | None:
        """Return why a direct step would not do all that this run's plain steps do, in words; None where it does."""
        model, trainer = module.model, module.trainer
        if not isinstance(batch, GraphBatch) or batch.counts is not None or model.backend.name != "fused":
            return "it needs backend=fused and a GraphBatch on a CPU"
        if not model.is_plain_gcn:
            return "it needs graph convolutions without feed-forward blocks and encodings, model=gcn"
        if model.num_components > 1:
            return "a row is several molecules"
        descriptors = [] if batch.descriptors is None else [batch.descriptors]
        floats = [*model.parameters(), *module.buffers(recurse=False), batch.x, batch.targets, *descriptors]
        integers = [batch.ptr, batch.rowptr, batch.col]
        if not all(tensor.device.type == "cpu" and tensor.is_contiguous() for tensor in floats + integers):
            return "it needs contiguous tensors on a CPU"
        if any(tensor.dtype != torch.float32 for tensor in floats) or any(tensor.dtype != torch.int32 for tensor in integers):
            return "it needs numbers in float32 and indices in int32"
        if (name := module.listener()) is not None:
            return f"{name} is to be called within each step"
        if model.linears is None or not _has_its_own_weights(model):
            return "the head is no chain of linear maps, or weights are shared or computed from others"
        if module.config.training.freeze is not None:
            return "training.freeze leaves weights out"
        if trainer.world_size > 1:
            return "several devices exchange gradients within a step"
        if trainer.precision != "32-true":
            return "it needs trainer.precision=32-true"
        if module.config.training.accumulate_batches > 1:
            return "training.accumulate_batches adds up gradients"
        if torch.is_anomaly_enabled() or not isinstance(trainer.profiler, PassThroughProfiler):  # type: ignore[attr-defined]
            return "trainer.detect_anomaly or trainer.profiler looks at autograd's steps"
        return FusedUpdate.why_not(optimizer)

    def __call__(self, batch: GraphBatch, first: bool, last: bool) -> bool:
        """Take the step; see :meth:`molgcn.training.steps.base.TrainingStep.__call__`."""
        state = self._state()
        usual = self._why_not_now(state) is None
        if not (self._warm and usual) or batch.num_nodes < 2:  # batch norm refuses a single atom
            self._warm = self._warm or usual
            return False
        if self._made_of != state or self._update.group is not self.optimizer.param_groups[0]:
            self._make(batch)  # the first time, or after a change such as torch.nn.utils.vector_to_parameters or a loaded state dict
            self._made_of = state
        self._gradients_of(batch)
        self._clip()
        self._update()
        if self.module.ema is not None:
            self.module.ema.update(self.module.model)
        return True

    def _why_not_now(self, state: list[Any]) -> str | None:
        """Return why this very step is to be taken plainly; None where everything learns and nobody listens."""
        _, learns, trains, norms, *_ = state
        if not (all(learns) and all(trains)):
            return "weights are frozen or modules in evaluation mode"
        if self.module.model.norm == "batch" and any(momentum is None for _, momentum in norms):
            return "running statistics are means over all batches"
        if self.watch.has_hooks():
            return "there are hooks"
        return FusedUpdate.why_not(self.optimizer)

    def _state(self) -> list[Any]:
        tensors, options = self.module.relied_on()
        return [*self.watch.state(tensors), options]

    def _make(self, batch: GraphBatch) -> None:
        model = self.module.model
        with torch.random.fork_rng(devices=[]):  # preparing the call draws a seed, which no plain step does
            call = GcnCall.of(fused_call.layer_call(model, batch))
        assert call is not None
        statistics: list[Any] = list(model.norms) if model.norm == "batch" else []
        self._network = BoundNetwork(call, [norm.num_batches_tracked for norm in statistics])
        gradients = dict(zip(call.parameters.tensors, self._network.gradients, strict=True))
        gradients |= {parameter: torch.empty_like(parameter) for parameter in model.parameters() if parameter not in gradients}
        self._gradients = [gradients[parameter] for parameter in self._parameters]
        self._head = head_of(self.module, gradients, batch.targets)
        self._embed = None if model.embed is None else (model.embed.weight.detach(), gradients[model.embed.weight])
        self._update = FusedUpdate(self.optimizer, gradients)

    def _gradients_of(self, batch: GraphBatch) -> None:
        module = self.module
        arrays = batch.slot if isinstance(batch, SlotBatch) and not batch.is_changed else batch  # views of a slot take as long as the loss
        x = arrays.x if self._embed is None else batch.x.mm(self._embed[0].t())
        dropout = module.model.dropout
        seed = int(dropout_seed(x.device)) if dropout > 0 else 0
        sizes = batch.num_graphs, batch.num_nodes, batch.num_edges
        pooled = self._network.forward(sizes, x, arrays.ptr, arrays.rowptr, arrays.col, seed)
        states = module.model.with_descriptors(pooled, batch.descriptors)
        gradient, sums = self._head(states, arrays.targets)
        gradient = gradient if states is pooled else gradient[:, : pooled.shape[1]].contiguous()
        if self._embed is None:
            self._network.backward(gradient)
        else:
            self._network.backward(gradient, grad_x := torch.empty_like(x))
            torch.mm(grad_x.t(), batch.x, out=self._embed[1])
        module.train_loss.update(sums)

    def _clip(self) -> None:
        limit = self.module.config.training.gradient_clip_norm
        if limit is None:
            return
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        clip_grad_norm_(self._parameters, limit)
        for parameter in self._parameters:
            parameter.grad = None


class FusedUpdate:
    """Takes steps of a fused optimiser on a CPU by PyTorch's own kernel, with lists of tensors that its `step` would gather each time.

    The optimiser has stepped before, so that its state exists. The step counts in its state become views of one tensor. The gradients of
    its parameters are written anew before each call.
    """

    def __init__(self, optimizer: Optimizer, gradients: Mapping[Tensor, Tensor]) -> None:
        (self.group,) = optimizer.param_groups
        parameters = self.group["params"]
        lists = [parameter.detach() for parameter in parameters], [gradients[parameter] for parameter in parameters]
        if isinstance(optimizer, SGD):
            momenta = [optimizer.state[parameter]["momentum_buffer"] for parameter in parameters] if self.group["momentum"] else []
            self._run = partial(torch._fused_sgd_, *lists, momenta, is_first_step=False)
            self._options: tuple[str, ...] = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
            return
        states = [optimizer.state[parameter] for parameter in parameters]
        self._steps = torch.stack([state["step"] for state in states])
        for state, step in zip(states, self._steps.unbind(), strict=True):
            state["step"] = step
        moments = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        kernel = torch._fused_adamw_ if isinstance(optimizer, AdamW) else torch._fused_adam_
        self._run = partial(kernel, *lists, *moments, [], [state["step"] for state in states], amsgrad=False)
        self._options = ("lr", "weight_decay", "eps", "maximize")

    @staticmethod
    def why_not(optimizer: Optimizer) -> str | None:
        """Return why an optimiser cannot step in this way, in words; None where it can, as those that this project builds."""
        if type(optimizer) not in (Adam, AdamW, SGD) or len(optimizer.param_groups) != 1:
            return "the optimiser is not Adam, AdamW or SGD with one group of parameters"
        (group,) = optimizer.param_groups
        usual = group["fused"] and not group.get("amsgrad") and not group.get("differentiable")
        decoupled = group.get("decoupled_weight_decay", False) == isinstance(optimizer, AdamW)
        return None if usual and decoupled else "the optimiser is not fused, or has options that are not used here"

    def __call__(self) -> None:
        """Take one step with the group's present learning rate and options."""
        options = {name: self.group[name] for name in self._options}
        if "betas" in self.group:
            self._steps += 1
            options["beta1"], options["beta2"] = self.group["betas"]
        self._run(**options)


def _has_its_own_weights(model: MoleculeNet) -> bool:
    """Return whether the operators read the parameters themselves, each once: none is shared, or computed from others as by pruning."""
    layers = [
        *model.convs,
        *(conv.lin for conv in model.convs),
        *model.norms,
        *(model.linears or []),
        *([model.embed] if model.embed else []),
    ]
    read = [tensor for layer in layers for name in ("weight", "bias") if (tensor := getattr(layer, name, None)) is not None]
    return sorted(map(id, read)) == sorted(map(id, model.parameters()))
