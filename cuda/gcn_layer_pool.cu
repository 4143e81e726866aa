// Mean, sum or max over each molecule's atoms. After batch statistics this kernel also applies the last layer's norm, relu and dropout.
#include "gcn_layer_activation.cuh"
#include "gcn_layer_pooling.cuh"

constexpr int bands = threads < quads ? 1 : threads / quads;  // threads that share a molecule's quad; each takes every `bands`-th atom

extern "C" __global__ void __launch_bounds__(threads) gcn_layer_pool(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    const bool waiting = statistics && p.in.on;
    float4* work = reinterpret_cast<float4*>(shared.tile);  // [2, bands, quads]
    wait_for_previous();
    if (waiting) find_statistics(p, p.in, shared, num_atoms(p));
    for (int graph = blockIdx.x; graph < p.num_graphs; graph += gridDim.x) {
        __syncthreads();
        const int begin = __ldg(p.ptr + graph), end = __ldg(p.ptr + graph + 1);
        const Pooled none(end - begin);
        for (int item = threadIdx.x; item < bands * quads; item += threads) {
            const int quad = item % quads;
            const Pending pending(p, shared, quad);
            Pooled all = none;
#pragma unroll 4
            for (int node = begin + item / quads; node < end; node += bands) {
                const float4 x = waiting ? pending(node) : load4(p.input + at_row(node) + 4 * quad);
                if (waiting && POOL == POOL_MAX) four(p.kept + at_row(node) + 4 * quad) = x;
                all.add(x);
            }
            work[item] = all.value;
            if (POOL == POOL_MAX) work[bands * quads + item] = all.ties;
        }
        __syncthreads();
        for (int quad = threadIdx.x; quad < quads; quad += threads) {
            Pooled all = none;
            for (int band = 0; band < bands; band++) all.add(work[band * quads + quad], POOL == POOL_MAX ? work[(bands + band) * quads + quad] : nothing());
            all.leave(p, graph, quad, end - begin);
        }
    }
}
