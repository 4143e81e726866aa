"""The fused operators, registered with torch.library: they know tensors only."""

from molgcn.ops.gcn_stack import StackInputs, gcn_stack
from molgcn.ops.gcn_stack_reference import gcn_stack_reference

__all__ = ["StackInputs", "gcn_stack", "gcn_stack_reference"]
