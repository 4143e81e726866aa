// Copies rows of statistics into buffers, a block for each, and counts the batch.
//
// Macro: MAX_BUFFERS.
#include "device.cuh"
#include "running_statistics_structs.h"  // molgcn/ops/running_statistics.py

extern "C" __global__ void __launch_bounds__(128) copy_statistics(const __grid_constant__ Parameters p) {
    wait_for_previous();
    const float* from = p.statistics + size_t(blockIdx.x) * p.columns;
    for (int i = threadIdx.x; i < p.columns; i += blockDim.x) p.buffers[blockIdx.x][i] = from[i];
    if (threadIdx.x == 0 && static_cast<int>(blockIdx.x) < p.num_counts) *p.counts[blockIdx.x] += 1;
}
