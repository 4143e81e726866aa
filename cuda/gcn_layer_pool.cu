// Mean, sum or max over each molecule's atoms. After batch statistics it is the last layer's norm, relu and dropout too.
#include "gcn_layer_activation.cuh"

extern "C" __global__ void __launch_bounds__(threads) gcn_layer_pool(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    const bool waiting = statistics && p.in.on;
    if (waiting) {
        find_statistics(p, p.in, shared.columns, num_atoms(p));
        __syncthreads();
    }
    for (size_t item = size_t(blockIdx.x) * threads + threadIdx.x; item < size_t(p.num_graphs) * quads; item += size_t(gridDim.x) * threads) {
        const int graph = static_cast<int>(item / quads), quad = static_cast<int>(item % quads);
        const int begin = __ldg(p.ptr + graph), end = __ldg(p.ptr + graph + 1);
        Columns column;
        if (waiting) column = {shared.column4(0, quad), shared.column4(1, quad), shared.column4(2, quad)};
        const float lowest = POOL == POOL_MAX && end > begin ? number(0xff800000u) : 0.0f;
        float4 total = make_float4(lowest, lowest, lowest, lowest), ties = nothing();
#pragma unroll 8
        for (int node = begin; node < end; node++) {
            const float4 x = waiting ? pending(p, column, node, quad) : load4(p.input + at_row(node) + 4 * quad);
            if (POOL != POOL_MAX) {
                add(total, x);
                continue;
            }
            if (waiting) four(p.kept + at_row(node) + 4 * quad) = x;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float y = at(x, e);
                float& most = at(total, e);
                at(ties, e) = y > most ? 1.0f : at(ties, e) + (y == most ? 1.0f : 0.0f);
                if (y > most || y != y) most = y;
            }
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (POOL == POOL_MEAN && end > begin) at(total, e) /= static_cast<float>(end - begin);
            if (4 * quad + e < HIDDEN) p.pooled[size_t(graph) * HIDDEN + 4 * quad + e] = at(total, e);
        }
        if (POOL == POOL_MAX && p.largest != nullptr) {
            four(p.largest + at_row(graph) + 4 * quad) = total;
            four(p.ties + at_row(graph) + 4 * quad) = ties;
        }
    }
}
