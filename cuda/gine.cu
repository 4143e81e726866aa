// Sums of relu(x + edge) over the entries of a row, and their gradients.
//
// Macros: those of row_walk.cuh, for one head.
#include "row_walk.cuh"

#include "gine_structs.h"  // molgcn/ops/gine_cuda.py

__device__ __forceinline__ void finish(const Parameters& p, const Lane& lane, const Task& task, const Columns& sum) {
    if (task.row < 0) return;
    store(lane, task.piece < 0 ? p.sums + size_t(task.row) * width : p.partial + size_t(task.piece) * width, sum);
}

// Sums over the entries of each target.
extern "C" __global__ void __launch_bounds__(threads) gine_forward(const __grid_constant__ Parameters p) {
    const Lane lane;
    each_task(p.order, [&](const Task& task) {
        Columns sum = {};
#pragma unroll unroll
        for (int i = 0; i < task.count; i++) {
            const int entry = task.begin + i;
            const Columns x = load(lane, p.x + size_t(p.order.col[entry]) * width);
            const Columns edge = load(lane, p.edges + size_t(p.order.edge[entry]) * width);
            each_column([&](int r, int v) {
                const real pre = x.at[r].of[v] + edge.at[r].of[v];
                sum.at[r].of[v] += pre < 0 ? real(0) : pre;  // keeps NaN
            });
        }
        finish(p, lane, task, sum);
    });
}

// Computes the gradients of x and of the edges, over the entries of each source.
extern "C" __global__ void __launch_bounds__(threads) gine_backward(const __grid_constant__ Parameters p) {
    const Lane lane;
    each_task(p.order, [&](const Task& task) {
        const Columns x = load(lane, p.x + size_t(max(task.row, 0)) * width, task.count > 0);
        Columns sum = {};
#pragma unroll unroll
        for (int i = 0; i < task.count; i++) {
            const int entry = task.begin + i;
            const size_t at = size_t(p.order.edge[entry]) * width;
            Columns grad = load(lane, p.grad_out + size_t(p.order.col[entry]) * width);
            const Columns edge = load(lane, p.edges + at);
            each_column([&](int r, int v) {
                if (!(x.at[r].of[v] + edge.at[r].of[v] > 0)) grad.at[r].of[v] = 0;
                sum.at[r].of[v] += grad.at[r].of[v];
            });
            store(lane, p.grad_edges + at, grad);
        }
        finish(p, lane, task, sum);
    });
}
