// The gradients of attention_forward.cu.
#include "attention.cuh"

// Gathers, for each target row, what its entries need of it.
extern "C" __global__ void __launch_bounds__(threads) attention_prepare(const __grid_constant__ Parameters p) {
    const Lane lane;
    const int stride = gridDim.x / head_blocks * groups, first = blockIdx.x / head_blocks * groups;
    for (int begin = first; begin < p.num_targets; begin += stride) {
        const int row = begin + threadIdx.x / group;
        const bool there = lane.there && row < p.num_targets;
        const size_t at = size_t(there ? row : 0) * HEADS + (there ? lane.head : 0);
        const Columns grad = load(lane, p.grad_out + size_t(row) * width, there), out = load(lane, p.out + size_t(row) * width, there);
        Node node{p.softmax[2 * at], p.softmax[2 * at + 1], 0, 0};
        each_column([&](int r, int v) { node.mean += grad.at[r].of[v] * out.at[r].of[v]; });
        node.mean = sum_over_head(node.mean);
#if !V2
        if (there) node.score = p.target[size_t(row) * p.target_stride + lane.head];
#endif
        if (there && lane.leads()) reinterpret_cast<Node*>(p.nodes)[at] = node;
    }
}

// Sums, for each source, over the entries that leave it. Writes the gradients of the source and the edges, and every score's gradient.
extern "C" __global__ void __launch_bounds__(threads) attention_sources(const __grid_constant__ Parameters p) {
    const Lane lane;
    const Order& o = p.order;
#if V2
    const Columns att = load(lane, p.att);
#endif
    each_task(o, [&](const Task& task) {
        const real* source = p.source + size_t(max(task.row, 0)) * p.source_stride;
        const Columns x = load(lane, source, task.count > 0);
        Columns grad_x = {};
#if !V2
        const real score_source = lane.there && task.count > 0 ? source[width + lane.head] : real(0);
        real grad_score = 0;
#endif
        const int steps = largest(task.count);
        for (int step = 0; step < steps; step += unroll) {
            Columns grad[unroll];
            Node node[unroll];
            int edge[unroll];
#if V2
            Columns pre[unroll];
#else
            real score[unroll];
#endif
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                const bool there = lane.there && step + u < task.count;
                const int row = there ? o.col[task.begin + step + u] : 0;
                edge[u] = there ? o.edge[task.begin + step + u] : 0;
                grad[u] = load(lane, p.grad_out + size_t(row) * width, there);
                node[u] = there ? reinterpret_cast<const Node*>(p.nodes)[size_t(row) * HEADS + lane.head] : Node{};
#if V2
                pre[u] = load(lane, p.target + size_t(row) * p.target_stride, there);
#if EDGES
                const Columns of_edge = load(lane, p.edges + size_t(edge[u]) * width, there);
                each_column([&](int r, int v) { pre[u].at[r].of[v] += of_edge.at[r].of[v]; });
#endif
#else
                score[u] = score_source + node[u].score;
#if EDGES
                if (there) score[u] += p.edges[size_t(edge[u]) * HEADS + lane.head];
#endif
#endif
            }
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                const bool there = lane.there && step + u < task.count;
                real product = 0;
                each_column([&](int r, int v) { product += grad[u].at[r].of[v] * x.at[r].of[v]; });
                product = sum_over_head(product);
#if V2
                real score = 0;
                each_column([&](int r, int v) {
                    pre[u].at[r].of[v] += x.at[r].of[v];
                    score += att.at[r].of[v] * pre[u].at[r].of[v] * slope(p, pre[u].at[r].of[v]);
                });
                score = sum_over_head(score);
                const real weight = exponential(score - node[u].largest) * node[u].scale;
#else
                const real weight = exponential(score[u] * slope(p, score[u]) - node[u].largest) * node[u].scale;
#endif
                if (!there) continue;
                const real factor = kept(p, edge[u], lane.head);
                real of_score = weight * (factor * product - node[u].mean);
                each_column([&](int r, int v) { grad_x.at[r].of[v] += weight * factor * grad[u].at[r].of[v]; });
#if V2
                each_column([&](int r, int v) {
                    pre[u].at[r].of[v] = of_score * att.at[r].of[v] * slope(p, pre[u].at[r].of[v]);
                    grad_x.at[r].of[v] += pre[u].at[r].of[v];
                });
#if EDGES
                store(lane, p.grad_edges + size_t(edge[u]) * width, pre[u]);
#endif
#else
                of_score *= slope(p, score[u]);
                grad_score += of_score;
#endif
                if (lane.leads()) p.grad_scores[size_t(edge[u]) * HEADS + lane.head] = of_score;
            }
        }
        if (task.row < 0) return;
        real* to = task.piece < 0 ? p.grad_source + size_t(task.row) * p.source_stride : p.partial + size_t(task.piece) * p.partial_stride;
        store(lane, to, grad_x);
#if !V2
        if (lane.leads()) to[width + lane.head] = grad_score;
#endif
    });
}

// Sums, for each target, the gradients of the scores of its entries. Writes the gradient of the target and, with V2, partial
// sums of the gradient of att.
extern "C" __global__ void __launch_bounds__(threads) attention_targets(const __grid_constant__ Parameters p) {
    const Lane lane;
    const Order& o = p.order;
#if V2
    const Columns att = load(lane, p.att);
    Columns grad_att = {};
#endif
    each_task(o, [&](const Task& task) {
#if V2
        const Columns x = load(lane, p.target + size_t(max(task.row, 0)) * p.target_stride, task.count > 0);
        Columns sum = {};
#else
        real sum = 0;
#endif
#pragma unroll unroll
        for (int i = 0; i < task.count; i++) {
            const int edge = o.edge[task.begin + i];
            const real of_score = lane.there ? p.grad_scores[size_t(edge) * HEADS + lane.head] : real(0);
#if V2
            const Columns source = load(lane, p.source + size_t(o.col[task.begin + i]) * p.source_stride);
#if EDGES
            const Columns of_edge = load(lane, p.edges + size_t(edge) * width);
#endif
            each_column([&](int r, int v) {
                real pre = x.at[r].of[v] + source.at[r].of[v];
#if EDGES
                pre += of_edge.at[r].of[v];
#endif
                sum.at[r].of[v] += of_score * slope(p, pre);
                grad_att.at[r].of[v] += of_score * pre * slope(p, pre);
            });
#else
            sum += of_score;
#endif
        }
        if (task.row < 0) return;
        real* to = task.piece < 0 ? p.grad_target + size_t(task.row) * p.target_stride : p.partial + size_t(task.piece) * p.partial_stride;
#if V2
        each_column([&](int r, int v) { sum.at[r].of[v] *= att.at[r].of[v]; });
        store(lane, to, sum);
#else
        if (lane.leads()) to[lane.head] = sum;
#endif
    });
#if V2
    store(lane, p.grad_att + size_t(blockIdx.x / head_blocks * groups + threadIdx.x / group) * width, grad_att);
#endif
}
