// The gradients of a head with hidden layers. A block sums those of weights and biases over its molecules. One block alone writes them;
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
    const auto start = [&](const Chunk<false>& chunk, float* to) {
        const int width = p.planes[chunk.layer].width, outs = p.planes[chunk.layer + 1].width, first = 4 * chunk.first;
        const float* weight = p.layers[chunk.layer].weight + first;
        copy_rows(to, 4 * chunk.quads, weight, width, min(4 * chunk.quads, width - first), outs, 4 * quads_of(outs));
    };
    wait_for_previous();
    const float factor = loss_scale(p.sums, p.grad_loss);
    float* sums = p.parts == nullptr ? nullptr : p.parts + static_cast<long long>(blockIdx.x) * p.part_size;
    each_rows(p, [&](const Rows& rows) {
        const bool begins = rows.first == blockIdx.x * p.rows;
#pragma unroll 1
        for (int i = 0; i < PLANES; i++) memory.copy_plane(i, rows);
        each_chunk<false>(memory, start, [&](const Chunk<false>& chunk, const float* weights) {
            const int number = chunk.layer;
            const Plane &in = p.planes[number], &out = p.planes[number + 1];
            float *states = memory.plane(number), *derivatives = memory.plane(number + 1);
            if (chunk.first == 0) {
                const Operand<false> left{derivatives, out.stride, quads_of(out.width)}, right{states, in.stride, quads_of(in.width + 1)};
                product(left, right, p.rows / 4, [&](int i, int j, const float(&sum)[4][4]) {
#pragma unroll
                    for (int m = 0; m < 4; m++) {
                        const int row = left.vector(i, m);
                        if (row >= out.width) break;
                        float4 x = nothing();
                        add(x, factor, make_float4(sum[m][0], sum[m][1], sum[m][2], sum[m][3]));
                        if (sums == nullptr) {
                            write_gradient(p, number, row, j, x);
                        } else {
                            float4& all = four(sums + p.layers[number].part + 4 * (row * right.quads + j));
                            if (!begins) add(x, all);
                            all = x;
                        }
                    }
                });
                __syncthreads();  // derivatives are about to replace the states
            }
            const Operand<true> left{derivatives, out.stride, p.rows / 4};
            const Operand<false> right{weights, 4 * chunk.quads, chunk.quads};
            product(left, right, quads_of(out.width), [&](int i, int j, const float(&sum)[4][4]) {
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    const int row = left.vector(i, m), column = 4 * chunk.first + right.vector(j, 0);
                    const bool there = row < rows.count;
                    if (number > 0) {
#pragma unroll
                        for (int n = 0; n < 4; n++) {
                            float& x = states[row * in.stride + column + n];
                            if (column + n < in.width) x = there && !(x <= 0.0f) ? sum[m][n] : 0.0f;  // keeps NaN, as torch.relu
                        }
                    } else if (there) {
                        float* to = p.grad_x + static_cast<long long>(rows.first + row) * in.width + column;
                        if (in.width % 4 == 0)
                            four(to) = make_float4(factor * sum[m][0], factor * sum[m][1], factor * sum[m][2], factor * sum[m][3]);
                        else
                            for (int n = 0; n < min(4, in.width - column); n++) to[n] = factor * sum[m][n];
                    }
                }
            });
        });
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
