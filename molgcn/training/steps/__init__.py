"""Ways to take a training step: plain, captured as a CUDA graph, or direct calls of the operators on a CPU."""
