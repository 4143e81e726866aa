// Writes each long row as the sum of its pieces, in order.
//
// Macro: DOUBLE.
#if DOUBLE
using real = double;
#else
using real = float;
#endif

#include "device.cuh"
#include "join_rows_structs.h"  // molgcn/ops/row_walk.py

extern "C" __global__ void __launch_bounds__(256) join_rows(const __grid_constant__ Parameters p) {
    const long long all = static_cast<long long>(p.num_long) * p.columns;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += gridDim.x * blockDim.x) {
        const int row = static_cast<int>(i / p.columns), column = static_cast<int>(i % p.columns);
        real sum = 0;
        for (int piece = p.long_first[row]; piece < p.long_first[row + 1]; piece++) sum += p.partial[size_t(piece) * p.partial_stride + column];
        p.joined[size_t(p.long_row[row]) * p.joined_stride + column] = sum;
    }
}
