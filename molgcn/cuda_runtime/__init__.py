"""The Python side of every CUDA kernel: compilation by NVRTC, the cache of machine code, argument structs and launches."""
