// Runs a CUDA kernel whose threads do not communicate, one thread after the other.

#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __grid_constant__

struct Index {
    int x;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

template <class Value>
Value __ldg(const Value* at) {
    return *at;
}

#include "collate.cu"

extern "C" void run(const Parameters* parameters, int grid, int block) {
    gridDim.x = grid, blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) collate(*parameters);
}
