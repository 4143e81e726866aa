// out = the sum over a row's entries of weight * source. The weights are the softmax of the entries' scores. Both take one pass over the
// entries.
#include "attention.cuh"

__device__ __forceinline__ void finish(const Parameters& p, const Lane& lane, int row, WeightedSum& sum) {
    const real scale = sum.finish();
    store(lane, p.out + size_t(row) * width, sum.columns);
    if (lane.leads()) {
        real* at = p.softmax + 2 * (size_t(row) * HEADS + lane.head);
        at[0] = sum.largest;
        at[1] = scale;
    }
}

extern "C" __global__ void __launch_bounds__(threads) attention_forward(const __grid_constant__ Parameters p) {
    const Lane lane;
    const Order& o = p.order;
#if V2
    const Columns att = load(lane, p.att);
#endif
    each_task(o, [&](const Task& task) {
        const bool some = lane.there && task.count > 0;
        const real* target = p.target + size_t(some ? task.row : 0) * p.target_stride;
#if V2
        const Columns x_target = load(lane, target, some);
#else
        const real score_target = some ? target[lane.head] : real(0);
#endif
        WeightedSum sum;
        const int steps = largest(task.count);
        for (int step = 0; step < steps; step += unroll) {
            int edge[unroll];
            real score[unroll];
            Columns x[unroll];
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                const bool there = lane.there && step + u < task.count;
                const int entry = task.begin + step + u;
                const real* source = p.source + (there ? size_t(o.col[entry]) * p.source_stride : 0);
                edge[u] = there ? o.edge[entry] : 0;
                x[u] = load(lane, source, there);
#if V2
                Columns pre = x[u];
#if EDGES
                const Columns of_edge = load(lane, p.edges + size_t(edge[u]) * width, there);
                each_column([&](int r, int v) { pre.at[r].of[v] += of_edge.at[r].of[v]; });
#endif
                score[u] = 0;
                each_column([&](int r, int v) {
                    const real sum = pre.at[r].of[v] + x_target.at[r].of[v];
                    score[u] += att.at[r].of[v] * sum * slope(p, sum);
                });
                score[u] = sum_over_head(score[u]);
#else
                score[u] = score_target;
                if (there) score[u] += source[width + lane.head];
#if EDGES
                if (there) score[u] += p.edges[size_t(edge[u]) * HEADS + lane.head];
#endif
                score[u] *= slope(p, score[u]);
#endif
                if (!there) score[u] = minus_infinity();
            }
#pragma unroll
            for (int u = 0; u < unroll; u++) sum.raise(score[u]);
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                if (!(lane.there && step + u < task.count)) continue;
                sum.add(score[u], kept(p, edge[u], lane.head), x[u]);
            }
        }
        if (task.row < 0) return;
        if (task.piece < 0) return finish(p, lane, task.row, sum);
        store(lane, p.partial + size_t(task.piece) * width, sum.columns);
        if (lane.leads()) {
            real* at = p.partial_softmax + 2 * (size_t(task.piece) * HEADS + lane.head);
            at[0] = sum.largest;
            at[1] = sum.total;
        }
    });
}

// Joins the pieces of each long row, in order.
extern "C" __global__ void __launch_bounds__(threads) attention_join_softmax(const __grid_constant__ Parameters p) {
    const Lane lane;
    const Order& o = p.order;
    const int stride = gridDim.x / head_blocks * groups;
    for (int i = blockIdx.x / head_blocks * groups + threadIdx.x / group; i < o.num_long; i += stride) {
        WeightedSum sum;
        for (int piece = o.long_first[i]; lane.there && piece < o.long_first[i + 1]; piece++) {
            const real* of_piece = p.partial_softmax + 2 * (size_t(piece) * HEADS + lane.head);
            sum.raise(of_piece[0]);
            const real factor = exponential(of_piece[0] - sum.largest);
            const Columns columns = load(lane, p.partial + size_t(piece) * width);
            sum.total += factor * of_piece[1];
            each_column([&](int r, int v) { sum.columns.at[r].of[v] += factor * columns.at[r].of[v]; });
        }
        finish(p, lane, o.long_row[i], sum);
    }
}
