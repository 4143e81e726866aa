// The end of a layer with the batch's statistics, in one launch, for batches of few atoms. A block has four columns of all atoms in its
// registers.
//
// Macro: ROWS (of a thread).
#include "rows_moments.cuh"
#include "rows_norm.cuh"

constexpr int rows = ROWS;

// Sums 4 or 8 numbers over a block, in a fixed order, at every thread. `shared` has 33 numbers for each.
template <int count>
__device__ __forceinline__ void block_sums(real (&x)[count], real* shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int which = 0;  // the number whose sum this lane has
#pragma unroll
    for (int half = count / 2, mask = 1; mask < 32; half /= 2, mask *= 2) {
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
    if (lane < count) shared[32 * which + warp] = x[0];
    __syncthreads();
    for (int i = warp; i < count; i += warps) {
        real sum = lane < warps ? shared[32 * i + lane] : real(0);
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
        if (lane == 0) shared[32 * count + i] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < count; i++) x[i] = shared[32 * count + i];
}

extern "C" __global__ void __launch_bounds__(1024) rows_finish_block(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    real* shared = reinterpret_cast<real*>(memory);
    const int num_atoms = atoms_of(p), quad = blockIdx.x, column = 4 * quad + threadIdx.x;
    const real count = static_cast<real>(num_atoms > 0 ? num_atoms : 1);
    const Quad weight = load_vector(p, p.weight, quad), bias = load_vector(p, p.bias, quad);
    const bool keeps = threadIdx.x < 4 && column < p.width;
    const Running running = keeps ? Running(p, column) : Running();
    wait_for_previous();
    Quad x[rows], residual[rows];
    real mean[4] = {}, squares[4] = {};
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row < num_atoms) x[i] = load(p.source + place(p, row, quad)), residual[i] = load_if(p, p.add, row, quad);
    }
#pragma unroll
    for (int i = 0; i < rows; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) mean[e] += x[i].e[e];
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
    const Affine norm(each([&](int e) { return mean[e]; }), each([&](int e) { return inverse_deviation(p, moments(e)); }), weight, bias);
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row < num_atoms)
            finish(p, norm, row, quad, x[i], residual[i]);
        else if (row < p.num_atoms)
            store(p, p.out, row, quad, constant(real(0)));
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (keeps && threadIdx.x == e) keep_moments(p, column, moments(e), running);
}

extern "C" __global__ void __launch_bounds__(1024) rows_finish_grad_block(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const int num_atoms = atoms_of(p), quad = blockIdx.x;
    const Affine norm(p, quad);  // of the forward pass
    wait_for_previous();
    Quad x[rows], g[rows];
    Ending ending[rows];
    real sums[8] = {};
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row >= num_atoms) continue;
        x[i] = load(p.source + place(p, row, quad)), g[i] = load(p.grad + place(p, row, quad));
        ending[i] = Ending(p, p.of_source, row, quad);
    }
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row >= num_atoms) continue;
        g[i] = activated_grad(p, row, quad, norm(x[i]), g[i]);
        const Quad normal = norm.normal(x[i]);
#pragma unroll
        for (int e = 0; e < 4; e++) sums[e] += g[i].e[e], sums[4 + e] = multiply_add(g[i].e[e], normal.e[e], sums[4 + e]);
    }
    block_sums(sums, reinterpret_cast<real*>(memory));
    const Quad grad = each([&](int e) { return sums[e]; }), slope = each([&](int e) { return sums[4 + e]; });
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const int row = threadIdx.x + i * blockDim.x;
        if (row < num_atoms)
            ending[i].write(p, p.of_source, row, quad, through_statistics(norm, x[i], g[i], grad, slope, static_cast<real>(num_atoms)));
        else if (row < p.num_atoms)
            store(p, p.of_source.out, row, quad, constant(real(0)));
    }
    if (threadIdx.x == 0) store_vector(p, p.grad_bias, quad, grad), store_vector(p, p.grad_weight, quad, slope);
}
