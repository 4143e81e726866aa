"""What CUDA kernels need of Python, whatever they compute: compiling by NVRTC, the cache of machine code, launching."""
