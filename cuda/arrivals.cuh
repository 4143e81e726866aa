// Blocks that count each other: which of them is the last.
#pragma once
#include "device.cuh"

// Whether this block is the last of `size` to arrive; the order of the sums then decides, not that of the blocks.
__device__ __forceinline__ bool last_to_arrive(uint32* arrivals, int size, int* flag) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *flag = atomicAdd(arrivals, 1u) == static_cast<uint32>(size - 1);
    __syncthreads();
    const bool last = *flag;
    if (last) __threadfence();
    return last;
}
