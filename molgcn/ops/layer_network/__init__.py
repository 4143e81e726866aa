"""The operator `molgcn::layer_network`: networks of GIN, GINE, SAGE, GCN or edge-feature GCN layers, norms and feed-forward blocks."""
