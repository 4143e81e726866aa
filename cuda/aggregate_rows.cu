// Kernels of molgcn::aggregate that take the edges row by row. Each of EDGES edges of a row is pulled by LANES threads, all at the same
// time.
//
// Rows of more than `part_size` edges are cut into parts. aggregate_parts adds the parts' sums up in order; with ATOMIC they are added
// atomically instead.
//
// Macros besides those of aggregate.cuh:
//   TIES           a row's result is its gradient divided by how many of its messages, and of zero, are as large as the largest
//   GRAD_WEIGHT    backward also writes the gradient of weights [E, D]
//   OWN            a row's own features, or backward its own gradient, are added to its result, weighted
#include "aggregate.cuh"

constexpr int block = 256, unroll = 4, worker_lanes = LANES * EDGES, workers = block / worker_lanes;
constexpr bool takes_largest = is_max && !TIES && !BACKWARD, compares = is_max && !takes_largest;
constexpr bool reads_own = compares || GRAD_WEIGHT;  // forward reads its own result, backward x

__device__ __forceinline__ real start() { return takes_largest ? -real(number(0x7f800000u)) : real(0); }  // where a sum or a maximum starts
__device__ __forceinline__ real combined(real a, real b) {
    if (!takes_largest) return a + b;
    return b > a || b != b ? b : a;  // keeps NaN
}

// Writes a row's result, from the sum or maximum of its messages.
__device__ __forceinline__ void finish(const Parameters& p, int row, int column, int degree, Values total) {
    const size_t at = size_t(row) * p.num_columns + column;
    if (TIES) {
        const Values grad = load(p.grad + at), largest = load(p.own + at);
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            const real count = total.v[k] + real(largest.v[k] == 0);
            p.shares[at + k] = count > 0 ? grad.v[k] / count : real(0);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < VEC; k++) {
        if (takes_largest && degree == 0) total.v[k] = 0;
        if (is_mean && !BACKWARD && degree > 0) total.v[k] /= real(degree);
    }
#if OWN
    const Values center = load(p.center + at);
    const real own_weight = widened(__ldg(p.own_weight));
#pragma unroll
    for (int k = 0; k < VEC; k++) total.v[k] += own_weight * center.v[k];
#endif
    store(p.result + at, total);
}

// Adds what a row gets along an edge from the node at its other end.
__device__ __forceinline__ void add(const Parameters& p, int node, size_t edge, int column, const Values& own, Values& total) {
    const size_t at = size_t(node) * p.num_columns + column;
    const Values w = weights_of(p, edge, column);
#if BACKWARD && REDUCE == 2
    const Values pulled = load(p.shares + at), largest = load(p.largest + at);
#else
    const Values pulled = load(p.pulled + at);
#endif
    const real factor = is_mean && BACKWARD ? share_of(p, node) : real(1);
    Values of_weight;
#pragma unroll
    for (int k = 0; k < VEC; k++) {
        if (takes_largest || TIES) {
            const real message = rounded(w.v[k] * pulled.v[k]);
            total.v[k] = TIES ? total.v[k] + real(message == own.v[k]) : combined(total.v[k], message);
            continue;
        }
        real got = factor * pulled.v[k];
#if BACKWARD && REDUCE == 2
        if (rounded(w.v[k] * own.v[k]) != largest.v[k]) got = 0;
#endif
        total.v[k] += WEIGHTS == 0 ? got : w.v[k] * got;
        if (GRAD_WEIGHT) of_weight.v[k] = own.v[k] * got;
    }
    if (GRAD_WEIGHT) store_once(p.grad_weight + edge * p.num_columns + column, of_weight);
}

extern "C" __global__ void __launch_bounds__(block) aggregate_rows(const __grid_constant__ Parameters p) {
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES % EDGES;
    const int tile = blockIdx.x / p.blocks_per_tile, column = (tile * LANES + lane) * VEC;
    const long long item = (blockIdx.x - tile * p.blocks_per_tile) * static_cast<long long>(workers) + threadIdx.x / worker_lanes;
    const bool is_part = item < p.num_parts;
    bool active = item < static_cast<long long>(p.num_parts) + p.num_rows && column < p.num_columns;
    uint32 begin = 0, end = 0;
    int row = 0;
    if (active) {
        row = is_part ? __ldg(p.part_row + item) : static_cast<int>(item - p.num_parts);
        begin = is_part ? __ldg(p.part_begin + item) : __ldg(p.rowptr + row);
        end = __ldg(p.rowptr + row + 1);
        if (is_part) end = min(end, begin + uint32(p.part_size));
        else if (p.num_parts > 0 && end - begin > uint32(p.part_size)) active = false, end = begin;
    }
    Values total, own;
#pragma unroll
    for (int k = 0; k < VEC; k++) total.v[k] = start();
    if (reads_own && active) own = load(p.own + size_t(row) * p.num_columns + column);
    for (uint32 first = begin + group; first < end; first += EDGES * unroll) {
        int node[unroll], edge[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const uint32 at = min(first + u * EDGES, end - 1);
            node[u] = __ldg(p.col + at);
            edge[u] = WEIGHTS != 0 ? __ldg(p.edge + at) : 0;
        }
        if (first + (unroll - 1) * EDGES < end) {
#pragma unroll
            for (int u = 0; u < unroll; u++) add(p, node[u], edge[u], column, own, total);
        } else {
#pragma unroll
            for (int u = 0; u < unroll - 1; u++) {
                if (first + u * EDGES < end) add(p, node[u], edge[u], column, own, total);
            }
        }
    }
#pragma unroll
    for (int mask = LANES; mask < worker_lanes; mask *= 2) {
#pragma unroll
        for (int k = 0; k < VEC; k++) total.v[k] = combined(total.v[k], shuffled(total.v[k], mask));
    }
    if (!active || group != 0) return;
    if (!is_part) return finish(p, row, column, static_cast<int>(end - begin), total);
    const int degree = __ldg(p.rowptr + row + 1) - __ldg(p.rowptr + row);
#pragma unroll
    for (int k = 0; k < VEC; k++) {
        if (ATOMIC) atomicAdd(p.sums + size_t(row) * p.num_columns + column + k, is_mean && !BACKWARD ? total.v[k] / real(degree) : total.v[k]);
        else p.sums[item * p.num_columns + column + k] = total.v[k];
    }
}

// Each block takes one row that has parts, and LANES * VEC of its channels.
extern "C" __global__ void __launch_bounds__(block) aggregate_parts(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    real* shared = reinterpret_cast<real*>(memory);  // [block][VEC]
    const int tile = blockIdx.x / p.num_long, number_of_row = blockIdx.x - tile * p.num_long;
    const int column = (tile * LANES + int(threadIdx.x) % LANES) * VEC, group = threadIdx.x / LANES;
    const bool active = column < p.num_columns;
    const int row = __ldg(p.long_row + number_of_row), end = __ldg(p.long_first + number_of_row + 1);
    Values total;
#pragma unroll
    for (int k = 0; k < VEC; k++) total.v[k] = start();
    for (int part = __ldg(p.long_first + number_of_row) + group; active && part < end; part += block / LANES) {
#pragma unroll
        for (int k = 0; k < VEC; k++) total.v[k] = combined(total.v[k], p.sums[size_t(part) * p.num_columns + column + k]);
    }
#pragma unroll
    for (int k = 0; k < VEC; k++) shared[threadIdx.x * VEC + k] = total.v[k];
    for (int half = block / 2; half >= LANES; half /= 2) {
        __syncthreads();
        if (int(threadIdx.x) >= half) continue;
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            shared[threadIdx.x * VEC + k] = combined(shared[threadIdx.x * VEC + k], shared[(threadIdx.x + half) * VEC + k]);
        }
    }
    if (!active || group != 0) return;
#pragma unroll
    for (int k = 0; k < VEC; k++) total.v[k] = shared[threadIdx.x * VEC + k];
    finish(p, row, column, __ldg(p.rowptr + row + 1) - __ldg(p.rowptr + row), total);
}
