// The gradients of a head. A block sums those of weights and biases over its molecules. One block alone writes them;
// otherwise head_layers_sums adds up the sums of all blocks, in order.
#include "head_layers.cuh"

constexpr int lanes = 8;  // threads that add up the parts of a quad

// Writes four numbers of a gradient, or the last few and that of the bias.
__device__ __forceinline__ void write_gradient(const Parameters& p, int layer, int out, int quad, const float4& x) {
    const int width = p.planes[layer].width;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int column = 4 * quad + e;
        if (column < width) p.layers[layer].grad_weight[out * width + column] = at(x, e);
        if (column == width) p.layers[layer].grad_bias[out] = at(x, e);
    }
}

extern "C" __global__ void __launch_bounds__(512) head_layers_backward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    const Memory memory{p, reinterpret_cast<float*>(shared)};
    const Thread mine(p);
    const auto start = [&](const Chunk<false>& chunk, float* to) {
        const int width = p.planes[chunk.layer].width, outs = p.planes[chunk.layer + 1].width, first = 4 * chunk.first;
        const float* weight = p.layers[chunk.layer].weight + first;
        copy_rows(to, 4 * chunk.quads, weight, width, min(4 * chunk.quads, width - first), outs, 4 * quads_of(outs));
    };
    start(Chunk<false>::begin(p), memory.chunk(0));  // forward has read the weights too
    wait_for_previous();
    const float factor = p.sums == nullptr ? 1.0f : loss_scale(p.sums, p.grad_loss);
    float* sums = p.parts == nullptr ? nullptr : p.parts + static_cast<long long>(blockIdx.x) * p.part_size;
    each_rows(p, [&](const Rows& rows, bool begins) {
        if (!begins) start(Chunk<false>::begin(p), memory.chunk(0));
#pragma unroll 1
        for (int i = 0; i < PLANES; i++) memory.copy_plane(i, rows);
        each_chunk<false>(memory, start, [&](const Chunk<false>& chunk, const float* weights) {
            const int number = chunk.layer, stride = 4 * chunk.quads;
            const Plane &in = p.planes[number], &out = p.planes[number + 1];
            const float *of_out = memory.gradient(number + 1) + mine.row * out.stride, *states = memory.plane(number) + mine.row * in.stride;
            float* of_in = memory.gradient(number) + mine.row * in.stride;
#pragma unroll 1
            for (int quad = mine.team; quad < chunk.quads; quad += mine.teams) {
                const int column = 4 * (chunk.first + quad);
                float4 sum = nothing();
                const float* w = weights + 4 * quad;
#pragma unroll 4
                for (int step = 0; step < quads_of(out.width); step++) {
                    const float4 g = *reinterpret_cast<const float4*>(of_out + 4 * step);
#pragma unroll
                    for (int e = 0; e < 4; e++) add(sum, at(g, e), *reinterpret_cast<const float4*>(w + (4 * step + e) * stride));
                }
                if (number > 0) {
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (column + e >= in.width || states[column + e] <= 0.0f) at(sum, e) = 0.0f;  // keeps NaN, as torch.relu
                    four(of_in + column) = sum;
                } else if (mine.row < rows.count) {
                    float* to = p.grad_x + static_cast<long long>(rows.first + mine.row) * in.width + column;
                    const float4 x = make_float4(factor * sum.x, factor * sum.y, factor * sum.z, factor * sum.w);
                    if (in.width % 4 == 0)
                        four(to) = x;
                    else
                        for (int e = 0; e < min(4, in.width - column); e++) to[e] = at(x, e);
                }
            }
        });
#pragma unroll 1
        for (int tile = threadIdx.x; tile < p.num_tiles; tile += blockDim.x) {
            int number = LAYERS - 1;
            while (tile < p.layers[number].first_tile) number--;
            const Plane &in = p.planes[number], &out = p.planes[number + 1];
            const int across = quads_of(in.width + 1), i = (tile - p.layers[number].first_tile) / across, j = (tile - p.layers[number].first_tile) % across;
            const float *g = memory.gradient(number + 1) + 4 * i, *x = memory.plane(number) + 4 * j;
            float4 sum[4] = {};
#pragma unroll 4
            for (int row = 0; row < p.rows; row++) {
                const float4 left = *reinterpret_cast<const float4*>(g + row * out.stride), right = *reinterpret_cast<const float4*>(x + row * in.stride);
#pragma unroll
                for (int m = 0; m < 4; m++) add(sum[m], at(left, m), right);
            }
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const int row = 4 * i + m;
                if (row >= out.width) break;
                float4 all = nothing();
                add(all, factor, sum[m]);
                if (sums == nullptr) {
                    write_gradient(p, number, row, j, all);
                } else {
                    float4& of_block = four(sums + p.layers[number].part + 4 * (row * across + j));
                    if (!begins) add(all, of_block);
                    of_block = all;
                }
            }
        }
    });
}

extern "C" __global__ void __launch_bounds__(256) head_layers_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    float4* sums = reinterpret_cast<float4*>(shared);
    wait_for_previous();
    const int quads = blockDim.x / lanes, lane = threadIdx.x / quads;
    int quad = blockIdx.x * quads + threadIdx.x % quads;
    const bool there = 4 * quad < p.part_size;
    float4 sum = nothing();
    if (there) {
#pragma unroll 8
        for (int part = lane; part < p.num_parts; part += lanes)
            add(sum, load4_past_l1(p.parts + static_cast<long long>(part) * p.part_size + 4 * quad));
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (lane > 0 || !there) return;
    for (int i = 1; i < lanes; i++) add(sum, sums[threadIdx.x + i * quads]);
    int layer = 0;
    while (layer + 1 < LAYERS && 4 * quad >= p.layers[layer + 1].part) layer++;
    quad -= p.layers[layer].part / 4;
    const int columns = quads_of(p.planes[layer].width + 1);
    write_gradient(p, layer, quad / columns, quad % columns, sum);
}
