"""The operator of networks of layers: GIN, GINE, SAGE, GCN and GCN with edges, their feed-forward blocks and norms."""
