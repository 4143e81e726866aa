// First states of atoms or bonds: rows of features and of random walks, each times a matrix, and the moments of the walks' norm.
//
// A block holds the matrix in shared memory and goes through tiles of TEAMS * ROWS rows. LANES threads side by side are a team, and have a
// quad of columns each, in ROWS rows of a tile. Wider states are shared by several blocks.
//
// Macros: those of encode.cuh, LANES, TEAMS, ROWS.
#include "encode.cuh"

constexpr int threads = 256;
constexpr int matrix_stride = 4 * LANES + 4, tile_rows = TEAMS * ROWS, chunks = (out_quads + LANES - 1) / LANES;

#if NORM
// Sums up the walks and their squares over the rows of a block, in double, so that variances do not suffer from cancellation.
extern "C" __global__ void __launch_bounds__(1024) encode_moments(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    double* shared = reinterpret_cast<double*>(memory);  // [2, threads]
    wait_for_previous();
    const int column = threadIdx.x % MORE_IN, lane = threadIdx.x / MORE_IN, lanes = blockDim.x / MORE_IN;
    const int first = blockIdx.x * p.rows_per_block, end = min(first + p.rows_per_block, num_real(p.num_real, nullptr, p.num_rows));
    double sum = 0.0, squares = 0.0;
#pragma unroll 8
    for (int row = first + lane; lane < lanes && row < end; row += lanes) {
        const double value = __ldg(p.walks + size_t(row) * MORE_IN + column);
        sum += value, squares = fma(value, value, squares);
    }
    shared[threadIdx.x] = sum, shared[blockDim.x + threadIdx.x] = squares;
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * MORE_IN; i += blockDim.x) {
        const double* from = shared + (i < MORE_IN ? i : blockDim.x + i - MORE_IN);
        double total = 0.0;
        for (int k = 0; k < lanes; k++) total += from[k * MORE_IN];
        p.sums[size_t(blockIdx.x) * 2 * MORE_IN + i] = total;
    }
}

// The mean has two parts: the second is what rounding leaves of it, which matters where a sum over many rows is small.
struct Moments {
    float mean, rest, variance;
};

// Returns a column's moments over the batch, given its sums, and updates the running ones.
__device__ __forceinline__ Moments batch_moments(const Parameters& p, int column, double sum, double squares, int num_rows) {
    const double rows = max(num_rows, 1), mean = sum / rows, difference = squares / rows - mean * mean;
    const double variance = difference < 0.0 ? 0.0 : difference;
    const float rounded = static_cast<float>(mean);
    if (blockIdx.x == 0) {
        const float momentum = num_rows > 0 ? p.momentum : 0.0f;  // a batch without rows changes nothing
        const float before[2] = {p.running_mean[column], p.running_var[column]};
        const float unbiased = static_cast<float>(variance * rows / max(num_rows - 1, 1));
        p.statistics[column] = fmaf(momentum, rounded - before[0], before[0]);
        p.statistics[MORE_IN + column] = fmaf(momentum, unbiased - before[1], before[1]);
    }
    return {rounded, static_cast<float>(mean - rounded), static_cast<float>(variance)};
}

// Finds what `bring_rows` applies: the norm with its weight and bias. The first block also writes it without them, for backward.
__device__ __forceinline__ void find_norm(const Parameters& p, float* norm, double* shared, int num_rows) {
    constexpr int values = 2 * MORE_IN, lanes = threads / values;
    const bool in_batch = p.num_sums > 0;
    if (in_batch) {
        const int value = threadIdx.x % values, lane = threadIdx.x / values;
        double total = 0.0;
#pragma unroll 8
        for (int part = lane; lane < lanes && part < p.num_sums; part += lanes) total += p.sums[size_t(part) * values + value];
        shared[threadIdx.x] = total;
        __syncthreads();
    }
    for (int column = threadIdx.x; column < MORE_IN; column += threads) {
        double sum = 0.0, squares = 0.0;
        for (int k = 0; in_batch && k < lanes; k++) sum += shared[k * values + column], squares += shared[k * values + MORE_IN + column];
        const Moments running = {p.running_mean[column], 0.0f, p.running_var[column]};
        const Moments it = in_batch ? batch_moments(p, column, sum, squares, num_rows) : running;
        const float inverse = 1.0f / sqrtf(it.variance + p.eps), weight = p.norm_weight[column];
        const float moments[3] = {it.mean, inverse, -it.rest * inverse};
        norm[column] = it.mean, norm[MORE_IN + column] = inverse * weight;
        norm[2 * MORE_IN + column] = fmaf(moments[2], weight, p.norm_bias[column]);
        for (int i = 0; blockIdx.x == 0 && i < 3; i++) p.moments[i * MORE_IN + column] = moments[i];
    }
    __syncthreads();
}
#endif

// Returns an entry of the matrix of both maps: row `in`, column `e` of a quad.
__device__ __forceinline__ float entry(const Parameters& p, int in, int quad, int e) {
    const int out = 4 * quad + e, step = in - 4 * x_quads, more = out - 4 * first_quad;
    const bool walks = MORE_IN > 0 && step >= 0;
    const bool there = walks ? step < MORE_IN && more >= 0 && more < MORE_OUT : in < IN && out < OUT;
    const float* from = walks ? p.walk_weight + size_t(more) * MORE_IN + step : p.weight + size_t(out) * IN + in;
    return there ? __ldg(from) : 0.0f;
}
__device__ __forceinline__ float bias_of(const Parameters& p, int quad, int e) {
    const int out = 4 * quad + e, more = out - 4 * first_quad;
    float sum = p.bias != nullptr && out < OUT ? p.bias[out] : 0.0f;
    if (p.walk_bias != nullptr && more >= 0 && more < MORE_OUT) sum += p.walk_bias[more];
    return sum;
}

__device__ __forceinline__ void store(const Parameters& p, int row, int quad, const float4& x) {
    const States states(quad);
    float* to = p.states + size_t(row) * width + states.column;
    if (aligned) {
        four(to) = x;
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (e < states.size) to[e] = at(x, e);
}

extern "C" __global__ void __launch_bounds__(threads, 4) encode_rows(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* matrix = reinterpret_cast<float*>(memory);  // [in_stride, matrix_stride]
    float* bias = matrix + in_stride * matrix_stride;  // [matrix_stride]
    float* norm = bias + matrix_stride;                // [3, MORE_IN]
    float* tile = norm + norm_size;                    // [tile_rows, in_stride], or what find_norm needs
    const int begin = blockIdx.x % chunks * LANES, step = gridDim.x / chunks * tile_rows;
    const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES, quad = begin + lane;
    wait_for_previous();
    const int num_rows = num_real(p.num_real, nullptr, p.num_rows);
#pragma unroll 10
    for (int i = threadIdx.x; i < in_stride * 4 * LANES; i += threads) {  // neighbours take adjacent inputs of one column
        const int in = i % in_stride, column = i / in_stride;
        matrix[in * matrix_stride + column] = entry(p, in, begin + column / 4, column % 4);
    }
    for (int i = threadIdx.x; i < 4 * LANES; i += threads) bias[i] = bias_of(p, begin + i / 4, i % 4);
#if NORM
    find_norm(p, norm, reinterpret_cast<double*>(tile), num_rows);
#endif
    for (int first = blockIdx.x / chunks * tile_rows; first < p.num_rows; first += step) {
        bring_rows(p, tile, norm, first, tile_rows, num_rows);
        __syncthreads();
        if (team < TEAMS && quad < out_quads) {
            float4 sum[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) sum[r] = four(bias + 4 * lane);
#pragma unroll 2
            for (int k = 0; k < in_stride; k += 4) {
                float4 weights[4];
#pragma unroll
                for (int e = 0; e < 4; e++) weights[e] = four(matrix + (k + e) * matrix_stride + 4 * lane);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float4 x = four(tile + (team + r * TEAMS) * in_stride + k);
#pragma unroll
                    for (int e = 0; e < 4; e++) add(sum[r], at(x, e), weights[e]);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int row = first + team + r * TEAMS;
                if (row < p.num_rows) store(p, row, quad, row < num_rows ? sum[r] : nothing());
            }
        }
        __syncthreads();
    }
}
