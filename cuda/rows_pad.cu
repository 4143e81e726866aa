// Copies rows of any width to rows of whole quads, with zeros in between.
//
// Macro: DOUBLE.
#include "real.cuh"
#include "rows_pad_structs.h"  // molgcn/ops/layer_network/rows_pad_cuda.py

extern "C" __global__ void __launch_bounds__(256) rows_pad(const __grid_constant__ Parameters p) {
    const int quads = p.stride / 4;
    const size_t step = size_t(gridDim.x) * blockDim.x, all = size_t(p.num_rows) * quads;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
        const size_t row = i / quads;
        const int column = 4 * static_cast<int>(i % quads);
        Quad x;
#pragma unroll
        for (int e = 0; e < 4; e++) x.e[e] = column + e < p.width ? __ldg(p.rows + row * p.width + column + e) : real(0);
        *reinterpret_cast<Quad*>(p.out + row * p.stride + column) = x;
    }
}
