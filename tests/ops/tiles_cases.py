"""Networks and batches that the tests of tiles on CUDA share."""

from layer_network_cases import NETWORKS

from molgcn.ops.layer_network.call import LayerNetworkCall

SIZES = [5, 9, 0, 18, 1, 30, 1, 7, 60, 2]
_WITH_BATCH_NORM = ("gin", "gine", "gcn_edge", "sage, batch norm", "feed-forward", "gelu", "elu")
_NOT = ("max", "dmpnn", "gated_gcn", "every layer", "gat")
CASES = {name: name not in _WITH_BATCH_NORM for name in NETWORKS if not any(other in name for other in _NOT) and name != "gcn"}
"""The names of networks that tiles can compute, and whether they can do so in training."""


def single(call: LayerNetworkCall) -> LayerNetworkCall:
    """Return a call in float32."""

    def converted(tensor):
        return tensor.float() if tensor.is_floating_point() else tensor

    return call._replace(
        graph=call.graph.mapped(converted), parameters=[*map(converted, call.parameters)], statistics=[*map(converted, call.statistics)]
    )
