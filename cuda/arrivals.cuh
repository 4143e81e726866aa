// Tells the blocks of a kernel which of them arrives last.
#pragma once
#include "device.cuh"

// Returns whether this block is the last of `size` to arrive. The last block may add up the others' sums in a fixed order, whichever block
// it is.
__device__ __forceinline__ bool last_to_arrive(uint32* arrivals, int size, int* flag) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *flag = atomicAdd(arrivals, 1u) == static_cast<uint32>(size - 1);
    __syncthreads();
    const bool last = *flag;
    if (last) __threadfence();
    return last;
}
