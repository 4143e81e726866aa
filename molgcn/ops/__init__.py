"""The fused operators, registered with torch.library: they know tensors only."""

from importlib.util import find_spec

from molgcn.ops import gcn_stack_autograd as gcn_stack_autograd
from molgcn.ops import gcn_stack_cuda as gcn_stack_cuda
from molgcn.ops import head_loss_cuda as head_loss_cuda
from molgcn.ops.gcn_conv import ConvInputs, gcn_conv
from molgcn.ops.gcn_conv_reference import gcn_conv_reference
from molgcn.ops.gcn_predict import gcn_predict
from molgcn.ops.gcn_stack import StackInputs, gcn_stack
from molgcn.ops.gcn_stack_reference import gcn_stack_reference

__all__ = [
    "HAS_CPU_EXTENSION",
    "ConvInputs",
    "StackInputs",
    "gcn_conv",
    "gcn_conv_reference",
    "gcn_predict",
    "gcn_stack",
    "gcn_stack_reference",
]

HAS_CPU_EXTENSION = find_spec("molgcn._cpu") is not None  # built at install time where there is a compiler
if HAS_CPU_EXTENSION:
    from molgcn.ops import gcn_conv_cpu as gcn_conv_cpu
    from molgcn.ops import gcn_stack_cpu as gcn_stack_cpu
    from molgcn.ops import head_loss_cpu as head_loss_cpu
