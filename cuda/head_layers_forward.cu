// The forward pass of a head with hidden layers, and the loss of its predictions over targets that are not missing (NaN).
#include "head_layers.cuh"

extern "C" __global__ void __launch_bounds__(512) head_layers_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    const Memory memory{p, reinterpret_cast<float*>(shared)};
    double total = 0.0, known = 0.0;
    const auto start = [&](const Chunk<true>& chunk, float* to) {
        const Layer& layer = p.layers[chunk.layer];
        const Plane& in = p.planes[chunk.layer];
        const int first = 4 * chunk.first, all = 4 * chunk.quads, rows = min(all, p.planes[chunk.layer + 1].width - first);
        copy_rows(to, in.stride, layer.weight + first * in.width, in.width, in.width, rows, all);
        copy_last(to, in.stride, layer.bias + first, 1, in.width, rows, all);
    };
    wait_for_previous();
    each_rows(p, [&](const Rows& rows) {
        memory.copy_plane(0, rows);
#pragma unroll 1
        for (int i = 1; i < LAYERS; i++) memory.copy_ones(i, rows);
        each_chunk<true>(memory, start, [&](const Chunk<true>& chunk, const float* weights) {
            const Plane &in = p.planes[chunk.layer], &out = p.planes[chunk.layer + 1];
            float* to = memory.plane(chunk.layer + 1);
            const Operand<true> left{memory.plane(chunk.layer), in.stride, p.rows / 4}, right{weights, in.stride, chunk.quads};
            product(left, right, quads_of(in.width + 1), [&](int i, int j, const float(&sum)[4][4]) {
#pragma unroll
                for (int m = 0; m < 4; m++)
#pragma unroll
                    for (int n = 0; n < 4; n++) {
                        const int row = left.vector(i, m), column = 4 * chunk.first + right.vector(j, n);
                        if (column >= out.width) continue;
                        const bool there = row < rows.count, last = chunk.layer == LAYERS - 1;
                        const float state = last ? sum[m][n] : there ? relu(sum[m][n]) : 0.0f;
                        to[row * out.stride + column] = state;
                        if (there && !last) out.rows[static_cast<long long>(rows.first + row) * out.width + column] = state;
                    }
            });
        });
        __syncthreads();
        const Plane& out = p.planes[LAYERS];
        const float* predictions = memory.plane(LAYERS);
        for (int i = threadIdx.x; i < rows.count * out.width; i += blockDim.x) {
            const int row = i / out.width, t = i % out.width;
            const long long index = static_cast<long long>(rows.first) * out.width + i;
            const float prediction = predictions[row * out.stride + t];
            const float target = p.target[index], standard = (target - p.mean[t]) / p.std[t];
            const bool there = target == target;
            out.rows[index] = there ? derivative(p.kind, prediction, standard, p.delta) : 0.0f;
            if (there) total += term(p.kind, prediction, standard, p.delta), known += 1.0;
        }
    });
    sum_over_block(reinterpret_cast<double*>(shared), total, known);
    if (threadIdx.x != 0) return;
    if (gridDim.x == 1)
        write_loss(total, known, p.sums, p.loss);
    else
        p.terms[2 * blockIdx.x] = total, p.terms[2 * blockIdx.x + 1] = known;
}
