// The end of a layer with the batch's statistics, in one launch, for batches of few atoms. A cluster of blocks has some quads of all atoms
// in its registers. The blocks share the atoms and send each other their sums.
//
// Macros: ROWS (of a thread), LANES (threads side by side, each with a quad of the same rows), CLUSTER (blocks, 1 without clusters).
#include "rows_moments.cuh"
#include "rows_norm.cuh"

constexpr int rows = ROWS, lanes = LANES;

// The quad and the rows of a thread.
struct Span {
    int rank, lane, quad, count, room;  // count: the atoms, room: the rows, both 0 for a lane beyond the last quad

    __device__ __forceinline__ explicit Span(const Parameters& p) {
#if CLUSTER > 1
        rank = cluster_rank();
#else
        rank = 0;
#endif
        lane = threadIdx.x % lanes, quad = blockIdx.x / CLUSTER * lanes + lane;
        count = 4 * quad < p.stride ? atoms_of(p) : 0, room = 4 * quad < p.stride ? p.num_atoms : 0;
    }
    __device__ __forceinline__ int row(int i) const { return (i * CLUSTER + rank) * (blockDim.x / lanes) + threadIdx.x / lanes; }
};

// Signals to the other blocks of the cluster that this one has started, before they send it anything.
__device__ __forceinline__ void begin() {
#if CLUSTER > 1
    cluster_arrive();
#endif
}
__device__ __forceinline__ void wait_for_peers() {
#if CLUSTER > 1
    cluster_wait();
#endif
}

// Sums 4 or 8 numbers of each quad over all rows, in a fixed order, at every thread of the quad. `shared` has room for 32 * LANES * count
// numbers, and `totals` for CLUSTER * LANES * count that no other sums use.
template <int count>
__device__ __forceinline__ void sum_rows(real (&x)[count], const Span& span, real* shared, real* totals) {
    static_assert(lanes * count <= 32, "each number of each quad needs a lane");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int which = 0;  // the number whose sum this lane has
#pragma unroll
    for (int half = count / 2, mask = lanes; mask < 32; half /= 2, mask *= 2) {
        if (half == 0) {
            x[0] += shuffle_xor(x[0], mask);
            continue;
        }
        const bool upper = lane & mask;  // keeps the upper half and sends the lower one
#pragma unroll
        for (int i = 0; i < half; i++) {
            const real given = upper ? x[i] : x[i + half], kept = upper ? x[i + half] : x[i];
            x[i] = kept + shuffle_xor(given, mask);
        }
        which += upper ? half : 0;
    }
    __syncthreads();
    if (lane < lanes * count) shared[32 * (span.lane * count + which) + warp] = x[0];
    __syncthreads();
    for (int i = warp; i < lanes * count; i += warps) {
        real sum = lane < warps ? shared[32 * i + lane] : real(0);
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
#if CLUSTER > 1
        if (lane < CLUSTER) store_to_peer(totals + span.rank * lanes * count + i, lane, sum);
#else
        if (lane == 0) totals[i] = sum;
#endif
    }
#if CLUSTER > 1
    cluster_arrive(), cluster_wait();
#else
    __syncthreads();
#endif
#pragma unroll
    for (int i = 0; i < count; i++) {
        x[i] = real(0);
#pragma unroll
        for (int rank = 0; rank < CLUSTER; rank++) x[i] += totals[(rank * lanes + span.lane) * count + i];
    }
}

extern "C" __global__ void __launch_bounds__(1024) rows_finish_block(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    begin();
    real *shared = reinterpret_cast<real*>(memory), *totals = shared + 32 * lanes * 4;
    const Span span(p);
    const int quad = span.quad, column = 4 * quad + threadIdx.x / lanes;
    const real count = static_cast<real>(span.count > 0 ? span.count : 1);
    const Quad weight = load_vector(p, p.weight, quad), bias = load_vector(p, p.bias, quad);
    const bool keeps = span.rank == 0 && threadIdx.x < 4 * lanes && column < p.width;
    const Running running = keeps ? Running(p, column) : Running();
    wait_for_previous();
    Quad x[rows], residual[rows];
    real mean[4] = {}, squares[4] = {};
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = span.row(i);
        if (row < span.count) x[i] = load(p.source + offset_of(p, row, quad)), residual[i] = load_if(p, p.add, row, quad);
    }
#pragma unroll
    for (int i = 0; i < rows; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) mean[e] += x[i].e[e];
    wait_for_peers();
    sum_rows(mean, span, shared, totals);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        mean[e] /= count;
#pragma unroll
        for (int i = 0; i < rows; i++)
            if (span.row(i) < span.count) squares[e] = multiply_add(x[i].e[e] - mean[e], x[i].e[e] - mean[e], squares[e]);
    }
    sum_rows(squares, span, shared, totals + CLUSTER * lanes * 4);
    const auto moments = [&](int e) { return Moments{static_cast<real>(span.count), mean[e], squares[e]}; };
    const Affine norm(each([&](int e) { return mean[e]; }), each([&](int e) { return inverse_deviation(p, moments(e)); }), weight, bias);
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = span.row(i);
        if (row < span.count)
            finish(p, norm, row, quad, x[i], residual[i]);
        else if (row < span.room)
            store(p, p.out, row, quad, constant(real(0)));
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (keeps && threadIdx.x / lanes == e) keep_moments(p, column, moments(e), running);
}

extern "C" __global__ void __launch_bounds__(1024) rows_finish_grad_block(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    begin();
    real* shared = reinterpret_cast<real*>(memory);
    const Span span(p);
    const int quad = span.quad;
    const Affine norm(p, quad);  // of the forward pass
    wait_for_previous();
    Quad x[rows], g[rows];
    Ending ending[rows];
    real sums[8] = {};
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = span.row(i);
        if (row >= span.count) continue;
        x[i] = load(p.source + offset_of(p, row, quad)), g[i] = load(p.grad + offset_of(p, row, quad));
        ending[i] = Ending(p, p.of_source, row, quad);
    }
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = span.row(i);
        if (row >= span.count) continue;
        g[i] = activated_grad(p, row, quad, norm(x[i]), g[i]);
        const Quad normal = norm.normal(x[i]);
#pragma unroll
        for (int e = 0; e < 4; e++) sums[e] += g[i].e[e], sums[4 + e] = multiply_add(g[i].e[e], normal.e[e], sums[4 + e]);
    }
    wait_for_peers();
    sum_rows(sums, span, shared, shared + 32 * lanes * 8);
    const Quad grad_bias = each([&](int e) { return sums[e]; }), grad_weight = each([&](int e) { return sums[4 + e]; });
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = span.row(i);
        if (row < span.count)
            ending[i].write(p, p.of_source, row, quad, through_statistics(norm, x[i], g[i], grad_bias, grad_weight, static_cast<real>(span.count)));
        else if (row < span.room)
            store(p, p.of_source.out, row, quad, constant(real(0)));
    }
    if (span.rank == 0 && threadIdx.x < lanes) store_vector(p, p.grad_bias, quad, grad_bias), store_vector(p, p.grad_weight, quad, grad_weight);
}
