"""The fused operators, registered with torch.library: they take and return tensors only."""

from importlib import import_module
from importlib.util import find_spec

from molgcn.extension import check_format
from molgcn.ops import aggregate_cuda as aggregate_cuda
from molgcn.ops import attention_cuda as attention_cuda
from molgcn.ops import encode_cuda as encode_cuda
from molgcn.ops import gcn_conv_cuda as gcn_conv_cuda
from molgcn.ops import gine_cuda as gine_cuda
from molgcn.ops import head_loss_cuda as head_loss_cuda
from molgcn.ops.aggregate import aggregate
from molgcn.ops.attention import AttentionInputs, attention
from molgcn.ops.attention_reference import attention_reference
from molgcn.ops.encode import EncodeInputs, encode
from molgcn.ops.gcn_conv import ConvInputs, gcn_conv
from molgcn.ops.gcn_conv_reference import gcn_conv_reference
from molgcn.ops.gine import GineInputs, gine_aggregate
from molgcn.ops.graph import Graph
from molgcn.ops.head_loss import Objective, head_loss
from molgcn.ops.layer_network import implementation_cuda as implementation_cuda
from molgcn.ops.renumber import renumber

__all__ = [
    "HAS_CPU_EXTENSION",
    "AttentionInputs",
    "ConvInputs",
    "EncodeInputs",
    "GineInputs",
    "Graph",
    "Objective",
    "aggregate",
    "attention",
    "attention_reference",
    "encode",
    "gcn_conv",
    "gcn_conv_reference",
    "gine_aggregate",
    "head_loss",
    "renumber",
]

# Built at installation where there is a compiler, perhaps for that machine's processor alone.
HAS_CPU_EXTENSION = False
if find_spec("molgcn._cpu") is not None:
    check_format(_cpu := import_module("molgcn._cpu"))
    HAS_CPU_EXTENSION = bool(_cpu.instruction_sets())
if HAS_CPU_EXTENSION:
    from molgcn.ops import aggregate_cpu as aggregate_cpu
    from molgcn.ops import attention_cpu as attention_cpu
    from molgcn.ops import gcn_conv_cpu as gcn_conv_cpu
    from molgcn.ops import gine_cpu as gine_cpu
    from molgcn.ops import head_loss_cpu as head_loss_cpu
    from molgcn.ops.layer_network import passes_cpu as passes_cpu
