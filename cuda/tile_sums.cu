// Adds up the sums of all warps of a backward pass in their order, and writes them to the gradients that they belong to.
//
// Macro: MAX_SUMS.
#include "device.cuh"
#include "tile_sums_structs.h"  // molgcn/ops/layer_network/tiles_arguments.py

constexpr int columns = 32, parts = 8;  // a block has so many numbers, and each is added up in so many parts

extern "C" __global__ void __launch_bounds__(columns* parts) tile_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);  // [parts, columns]
    const int column = blockIdx.x * columns + threadIdx.x % columns, part = threadIdx.x / columns;
    wait_for_previous();
    float sum = 0.0f;
    if (column < p.num_sums)
#pragma unroll 8
        for (int row = part; row < p.num_rows; row += parts) sum += __ldg(p.sums + size_t(row) * p.num_sums + column);
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (part > 0 || column >= p.num_sums) return;
    for (int i = 1; i < parts; i++) sum += shared[i * columns + threadIdx.x];
    int number = 0;
    while (number + 1 < p.num_gradients && p.gradients[number + 1].first <= column) number++;
    const Gradient& it = p.gradients[number];
    const int to = column - it.first;
    it.out[to] = it.add == nullptr ? sum : sum + it.add[to];
}
