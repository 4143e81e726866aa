"""One training on several devices: each process computes its share of a batch, and a step exchanges gradients once."""
