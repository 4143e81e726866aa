// Merges many parts of a norm's moments or sums into one. A block has four columns, and adds up what its threads have in double: a gradient
// that goes through a norm has a sum's relative error times the normalised input.
//
// Macros: DOUBLE, SUMS.
#include "layer_end.cuh"
#include "layer_end_merge_structs.h"  // molgcn/ops/layer_network/layer_ends_cuda.py

extern "C" __global__ void __launch_bounds__(128) layer_end_merge(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    real* scratch = reinterpret_cast<real*>(memory);
    const int first = 4 * blockIdx.x, half = padded_columns(p.from.width);
    wait_for_previous();
#if SUMS
    const auto use = [&](int i, const NormSums& x) { p.to[first + i] = x.bias, p.to[half + first + i] = x.weight; };
    merge_sums<double>(p.from, p.num_rows, first, 4, scratch, use);
#else
    int near = 0;  // the first parts may have no rows, where a launch begins with a batch's padding
    while (near + 1 < p.from.num_parts && rows_of(p.from, near) == real(0)) near++;
    const auto use = [&](int i, const ColumnMoments& x) {
        p.to[first + i] = x.mean, p.to[half + first + i] = x.squares;
        if (first + i == 0) p.to[2 * half] = x.count;
    };
    merge_moments<double>(p.from, p.num_rows, first, 4, scratch, use, near);
#endif
}
