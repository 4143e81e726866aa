// The forward pass of a head, and the loss of its predictions over targets that are not missing (NaN), if there are targets.
#include "head_layers.cuh"

constexpr int at_once = 4;  // outputs of a team

extern "C" __global__ void __launch_bounds__(512) head_layers_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    const Memory memory{p, reinterpret_cast<float*>(shared)};
    const Thread mine(p);
    double total = 0.0, known = 0.0;
    const auto start = [&](const Chunk<true>& chunk, float* to) {
        const Layer& layer = p.layers[chunk.layer];
        const Plane& in = p.planes[chunk.layer];
        const int first = 4 * chunk.first, all = 4 * chunk.quads, rows = min(all, p.planes[chunk.layer + 1].width - first);
        copy_rows(to, in.stride, layer.weight + first * in.width, in.width, in.width, rows, all);
        copy_last(to, in.stride, layer.bias + first, in.width, rows, all);
    };
    wait_for_previous();  // which may have written weights, where the states are older
    start(Chunk<true>::begin(p), memory.chunk(0));
    each_rows(p, [&](const Rows& rows, bool begins) {
        if (!begins) start(Chunk<true>::begin(p), memory.chunk(0));
        memory.copy_plane(0, rows);
#pragma unroll 1
        for (int i = 1; i < LAYERS; i++) memory.write_ones(i);
        each_chunk<true>(memory, start, [&](const Chunk<true>& chunk, const float* weights) {
            const Plane &in = p.planes[chunk.layer], &out = p.planes[chunk.layer + 1];
            const int outs = min(4 * chunk.quads, out.width - 4 * chunk.first), steps = quads_of(in.width + 1), stride = in.stride;
            const bool last = chunk.layer == LAYERS - 1;
            const float* x = memory.plane(chunk.layer) + mine.row * stride;
            float* to = memory.plane(chunk.layer + 1) + mine.row * out.stride + 4 * chunk.first;
            float* kept = out.rows + static_cast<long long>(rows.first + mine.row) * out.width + 4 * chunk.first;
            const bool keeps = !last && mine.row < rows.count;
#pragma unroll 1
            for (int first = at_once * mine.team; first < outs; first += at_once * mine.teams) {
                float sum[at_once] = {};
                const float* w = weights + first * stride;
#pragma unroll 4
                for (int step = 0; step < steps; step++) {
                    const float4 a = *reinterpret_cast<const float4*>(x + 4 * step);
#pragma unroll
                    for (int i = 0; i < at_once; i++) {
                        const float4 b = *reinterpret_cast<const float4*>(w + i * stride + 4 * step);
#pragma unroll
                        for (int e = 0; e < 4; e++) sum[i] = fmaf(at(a, e), at(b, e), sum[i]);
                    }
                }
#pragma unroll
                for (int i = 0; i < at_once; i++) {
                    const float state = last ? sum[i] : relu(sum[i]);
                    if (first + i < outs) to[first + i] = state;
                    if (first + i < outs && keeps) kept[first + i] = state;
                }
            }
        });
        __syncthreads();
        const Plane& out = p.planes[LAYERS];
        const float* predictions = memory.plane(LAYERS);
        for (int i = threadIdx.x; i < rows.count * out.width; i += blockDim.x) {
            const int row = i / out.width, t = i % out.width;
            const long long index = static_cast<long long>(rows.first) * out.width + i;
            const float prediction = predictions[row * out.stride + t];
            if (p.std == nullptr) {
                out.rows[index] = prediction;
                continue;
            }
            const float target = p.target[index], standard = (target - p.mean[t]) / p.std[t];
            const bool there = target == target;
            out.rows[index] = there ? derivative(p.kind, prediction, standard, p.delta) : 0.0f;
            if (there) total += term(p.kind, prediction, standard, p.delta), known += 1.0;
        }
    });
    if (p.std == nullptr) return;
    leave_loss(reinterpret_cast<double*>(shared), total, known, p.terms, p.sums, p.loss);
}
