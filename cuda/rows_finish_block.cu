// The end of a layer with the batch's statistics, in one launch for batches of few atoms: a block has four columns of all atoms in its registers.
#include "rows_moments.cuh"
#include "rows_norm.cuh"

constexpr int rows = DOUBLE ? 2 : 4;  // of a thread

// Sums of several numbers over a block, in a fixed order, at every thread; `shared` has as many a warp
template <int count>
__device__ __forceinline__ void block_sums(real (&x)[count], real* shared) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1)
#pragma unroll
        for (int i = 0; i < count; i++) x[i] += shuffle_xor(x[i], mask);
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < count; i++)
        if (lane == 0) shared[i * warps + threadIdx.x / 32] = x[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < count; i++) x[i] = lane < warps ? shared[i * warps + lane] : real(0);
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1)
#pragma unroll
        for (int i = 0; i < count; i++) x[i] += shuffle_xor(x[i], mask);
}

extern "C" __global__ void __launch_bounds__(1024) rows_finish_block(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    real* shared = reinterpret_cast<real*>(memory);
    const int num_atoms = atoms_of(p), quad = blockIdx.x;
    const real count = static_cast<real>(num_atoms > 0 ? num_atoms : 1);
    wait_for_previous();
    Quad x[rows];
    real mean[4] = {}, squares[4] = {};
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row < num_atoms) x[i] = load(p.source + place(p, row, quad));
#pragma unroll
        for (int e = 0; e < 4; e++) mean[e] += x[i].e[e];
    }
    block_sums(mean, shared);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        mean[e] /= count;
#pragma unroll
        for (int i = 0; i < rows; i++)
            if (threadIdx.x + i * blockDim.x < num_atoms) squares[e] = multiply_add(x[i].e[e] - mean[e], x[i].e[e] - mean[e], squares[e]);
    }
    block_sums(squares, shared);
    const auto moments = [&](int e) { return Moments{static_cast<real>(num_atoms), mean[e], squares[e]}; };
    for (int e = threadIdx.x; e < 4 && 4 * quad + e < p.width; e += blockDim.x) keep_moments(p, 4 * quad + e, moments(e));
    const Affine norm(p, quad, each([&](int e) { return mean[e]; }), each([&](int e) { return inverse_deviation(p, moments(e)); }));
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row < num_atoms)
            finish(p, norm, row, quad, x[i]);
        else if (row < p.num_atoms)
            store(p, p.out, row, quad, constant(real(0)));
    }
}

extern "C" __global__ void __launch_bounds__(1024) rows_finish_grad_block(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const int num_atoms = atoms_of(p), quad = blockIdx.x;
    wait_for_previous();
    const Affine norm(p, quad);
    Quad x[rows], g[rows];
    real sums[8] = {};
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row >= num_atoms) continue;
        x[i] = load(p.source + place(p, row, quad));
        g[i] = activated_grad(p, row, quad, norm(x[i]), load(p.grad + place(p, row, quad)));
        const Quad normal = norm.normal(x[i]);
#pragma unroll
        for (int e = 0; e < 4; e++) sums[e] += g[i].e[e], sums[4 + e] = multiply_add(g[i].e[e], normal.e[e], sums[4 + e]);
    }
    block_sums(sums, reinterpret_cast<real*>(memory));
    const Quad grad = each([&](int e) { return sums[e]; }), slope = each([&](int e) { return sums[4 + e]; });
    if (threadIdx.x == 0) store_vector(p, p.grad_bias, quad, grad), store_vector(p, p.grad_weight, quad, slope);
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row < num_atoms)
            write(p, p.of_source, row, quad, through_statistics(norm, x[i], g[i], grad, slope, static_cast<real>(num_atoms)));
        else if (row < p.num_atoms)
            store(p, p.of_source.out, row, quad, constant(real(0)));
    }
}
