// Prepares what all layers of a pass share, in one launch: the bonds' entries of Â, the atoms' molecules, x in rows of whole quads, the
// weights as operands of the tensor cores, and counters at zero.
//
// Macros: SELF_LOOPS, TRANSPOSED (operands of G W instead of S W^T), MAX_LAYERS.
#include "halves.cuh"
#include "gcn_layer_prepare_structs.h"  // molgcn/ops/gcn_layers_arguments.py

__device__ __forceinline__ float inverse_root_degree(const Parameters& p, int node) {
    const int begin = __ldg(p.rowptr + node), end = __ldg(p.rowptr + node + 1);
    int degree = end - begin + SELF_LOOPS;
    for (int bond = begin; SELF_LOOPS && bond < end; bond++) degree -= __ldg(p.col + bond) == node;
    return degree > 0 ? 1.0f / sqrtf(static_cast<float>(degree)) : 0.0f;
}

__device__ __forceinline__ void prepare_bonds(const Parameters& p, int node) {
    const int begin = __ldg(p.rowptr + node), end = __ldg(p.rowptr + node + 1);
    const float scale = inverse_root_degree(p, node);
    int source[4];
    float factor[4];
    for (int slot = 0; slot < 4; slot++) source[slot] = begin + slot < end ? __ldg(p.col + begin + slot) : node;
    for (int slot = 0; slot < 4; slot++) {
        const bool bond = begin + slot < end && !(SELF_LOOPS && source[slot] == node);
        factor[slot] = bond ? scale * inverse_root_degree(p, source[slot]) : 0.0f;
    }
    p.sources[node] = make_int4(source[0], source[1], source[2], source[3]);
    p.factors[node] = make_float4(factor[0], factor[1], factor[2], factor[3]);
    p.scale[node] = scale;
    int graph = 0, beyond = p.num_graphs;  // the last graph whose first atom is not after this one
    while (beyond - graph > 1) {
        const int middle = (graph + beyond) / 2;
        if (__ldg(p.ptr + middle) <= node)
            graph = middle;
        else
            beyond = middle;
    }
    p.graph[node] = graph;
}

// Prepares 16 columns of W^T (or W) as halves; one block does it. In its 16 x 16 blocks lane 4 g + t has columns 2 g and 2 g + 1 of rows 4
// t .. 4 t + 3.
__device__ __forceinline__ void prepare_weight(const Parameters& p, int layer, int chunk, float* most) {
    const int columns_in = layer == 0 ? p.num_features : p.hidden, in_chunks = (columns_in + 15) / 16, out_chunks = (p.hidden + 15) / 16;
    const int across = TRANSPOSED ? in_chunks : out_chunks, count = TRANSPOSED ? out_chunks : in_chunks;
    if (chunk >= across) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, column = 16 * chunk + 2 * (lane / 4);
    const auto load = [&](int k, int j, int e) {
        const int contracted = 16 * k + 4 * (lane % 4) + e, out = TRANSPOSED ? contracted : column + j, in = TRANSPOSED ? column + j : contracted;
        return out < p.hidden && in < columns_in ? __ldg(p.weights[layer] + size_t(out) * columns_in + in) : 0.0f;
    };
    Scale scale[2];
    for (int j = 0; j < 2; j++) {
        float x = 0.0f;
        for (int k = warp; k < count; k += warps)
            for (int e = 0; e < 4; e++) x = fmaxf(x, fabsf(load(k, j, e)));
        x = fmaxf(x, shuffle_xor(x, 1));
        x = fmaxf(x, shuffle_xor(x, 2));
        if (lane % 4 == 0) most[16 * warp + 2 * (lane / 4) + j] = x;
    }
    __syncthreads();
    for (int j = 0; j < 2; j++) {
        float x = 0.0f;
        for (int i = 0; i < warps; i++) x = fmaxf(x, most[16 * i + 2 * (lane / 4) + j]);
        scale[j] = Scale(bits(x));
        if (warp == 0) p.scales[layer * p.scale_stride + column + j] = scale[j].down * larger_by(0.375f * count);
    }
    __syncthreads();
    const int first_chunks = (p.num_features + 15) / 16;
    float4* to = reinterpret_cast<float4*>(p.fragments) + 64 * size_t(layer == 0 ? 0 : out_chunks * (first_chunks + (layer - 1) * out_chunks)) + lane;
    for (int k = warp; k < count; k += warps) {
        uint32 high[4], low[4];
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < 2; j++)
                split_halves(load(k, j, 2 * half) * scale[j].up, load(k, j, 2 * half + 1) * scale[j].up, high[2 * half + j], low[2 * half + j]);
        to[64 * (chunk * count + k)] = make_float4(number(high[0]), number(high[1]), number(high[2]), number(high[3]));
        to[64 * (chunk * count + k) + 32] = make_float4(number(low[0]), number(low[1]), number(low[2]), number(low[3]));
    }
}

extern "C" __global__ void __launch_bounds__(256) gcn_layer_prepare(const __grid_constant__ Parameters p) {
    const int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    const int num_nodes = __ldg(p.ptr + p.num_graphs);
    for (int i = first; i < p.num_counters; i += step) p.counters[i] = 0;
    for (int node = first; p.sources != nullptr && node < num_nodes; node += step) prepare_bonds(p, node);
    if (p.padded_x != nullptr)
        for (size_t i = first; i < size_t(num_nodes) * p.in_width; i += step) {
            const size_t node = i / p.in_width;
            const int column = static_cast<int>(i % p.in_width);
            p.padded_x[i] = column < p.num_features ? __ldg(p.x + node * p.num_features + column) : 0.0f;
        }
    SHARED_MEMORY(memory);
    const int across = (max(p.num_features, p.hidden) + 15) / 16;
    for (int item = blockIdx.x; item < p.num_layers * across; item += gridDim.x)
        prepare_weight(p, item / across, item % across, reinterpret_cast<float*>(memory));
}
