// Gradients of the maps that encode rows. Inputs get none, so two sums over the rows suffice: S = inputs^T G, with normalised walks, and s,
// the sums of the columns of G. With the norm's weight g and bias b, a walks' weight has g S + b s, and the norm itself W S and W s.
//
// Macros: those of encode.cuh, LANES (tiles of a block), ROWS (of a step; gradients of the next one are on their way meanwhile), COLUMNS (whose
// gradients a block writes, if there is no norm).
#include "encode.cuh"

constexpr int threads = 512;
// A tile has four inputs and four columns of one map. A lane sums a tile, in as many teams as there are threads for.
constexpr int x_tiles = x_quads * quads_of(OUT), tiles = x_tiles + quads_of(MORE_IN) * quads_of(MORE_OUT);
constexpr int chunks = (tiles + LANES - 1) / LANES, teams = threads / LANES;
constexpr int partial_size = (in_stride + 1) * out_stride;  // of a block: S and s
constexpr int stage = ROWS * (in_stride + out_stride);      // inputs of a step's rows, then gradients

struct Tile {
    int in_quad, out_quad;
    bool sums_columns;  // whether the lane also sums the columns of G

    __device__ __forceinline__ explicit Tile(int number) {
        const bool more = number >= x_tiles;
        const int index = more ? number - x_tiles : number, across = more ? quads_of(MORE_OUT) : quads_of(OUT);
        in_quad = index / across + (more ? x_quads : 0), out_quad = index % across + (more ? first_quad : 0);
        sums_columns = index < across && !(ADD && more);
    }
};

// Brings `rows` rows of gradients from `first` on. Whole quads are copied asynchronously.
__device__ __forceinline__ void bring_gradients(const Parameters& p, float* to, int first, int rows) {
#pragma unroll 4
    for (int i = threadIdx.x; i < rows * out_quads; i += threads) {
        const int row = first + i / out_quads;
        const States states(i % out_quads);
        const float* from = p.grad_states + size_t(row) * width + states.column;
        if (aligned) {
            copy16(to + 4 * i, from, true);
            continue;
        }
        float4 g = nothing();
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (e < states.size) at(g, e) = __ldg(from + e);
        four(to + 4 * i) = g;
    }
}

// Computes S and s of the rows of a block.
extern "C" __global__ void __launch_bounds__(threads, 2) encode_sums(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* norm = reinterpret_cast<float*>(memory);  // [3, MORE_IN]
    float* stages = norm + norm_size;                // [2, stage]
    float* totals = stages;                          // [threads, 20], after the rows
    const int part = blockIdx.x / chunks, number = blockIdx.x % chunks * LANES + threadIdx.x % LANES, team = threadIdx.x / LANES;
    const bool works = team < teams && number < tiles;
    const Tile it(works ? number : 0);
    wait_for_previous();
    const int begin = part * p.rows_per_block, end = min(begin + p.rows_per_block, num_real(p.num_real, nullptr, p.num_rows));
    for (int i = threadIdx.x; NORM && i < 3 * MORE_IN; i += threads) norm[i] = p.moments[i];
    if (NORM) __syncthreads();
    const auto bring = [&](float* to, int first) {
        const int rows = min(ROWS, end - first);
        bring_gradients(p, to + ROWS * in_stride, first, rows);
        bring_rows(p, to, norm, first, rows, end);
        commit_copies();
    };
    float4 sum[5] = {nothing(), nothing(), nothing(), nothing(), nothing()};  // four rows of S, and s
    bring(stages, begin);
    for (int first = begin, current = 0; first < end; first += ROWS, current ^= 1) {
        float *inputs = stages + stage * current, *gradients = inputs + ROWS * in_stride;
        const int rows = min(ROWS, end - first);
        __syncthreads();  // the step before is read no more
        bring(stages + stage * (current ^ 1), first + ROWS);
        wait_for_copies_but<1>();
        __syncthreads();
        if (!works) continue;
#pragma unroll 2
        for (int row = team; row < rows; row += teams) {
            const float4 x = four(inputs + row * in_stride + 4 * it.in_quad), g = four(gradients + row * out_stride + 4 * it.out_quad);
#pragma unroll
            for (int e = 0; e < 4; e++) add(sum[e], at(x, e), g);
            if (it.sums_columns) add(sum[4], g);
        }
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 5; e++) four(totals + 20 * threadIdx.x + 4 * e) = sum[e];
    __syncthreads();
    if (!works || team > 0) return;
    float* to = p.partial + size_t(part) * partial_size + 4 * it.out_quad;
#pragma unroll
    for (int e = 0; e < 5; e++) {
        for (int k = 1; k < teams; k++) add(sum[e], four(totals + 20 * (threadIdx.x + k * LANES) + 4 * e));
        if (e < 4 || it.sums_columns) four(to + (e < 4 ? 4 * it.in_quad + e : in_stride) * out_stride) = sum[e];
    }
}

// Adds up the values of `size` lanes in a fixed order. All threads call it, and thread 0 gets the sum.
__device__ __forceinline__ float sum_lanes(float* shared, float x, int size) {
    __syncthreads();
    shared[threadIdx.x] = x;
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && threadIdx.x + half < size) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    return threadIdx.x == 0 ? shared[0] : 0.0f;  // others would read while it is still being added up
}

// Adds up the blocks' sums of one entry in order. All threads call it, and those of the first team get the sum of their column.
__device__ __forceinline__ float sum_parts(const Parameters& p, float* shared, int index, bool wanted, int side) {
    const int team = threadIdx.x / side, num_teams = blockDim.x / side, end = wanted && team < num_teams ? p.num_partial : 0;
    float total = 0.0f;
#pragma unroll 8
    for (int part = team; part < end; part += num_teams) total += p.partial[size_t(part) * partial_size + index];
    __syncthreads();
    shared[threadIdx.x] = total;
    __syncthreads();
    for (int k = 1; team == 0 && k < num_teams; k++) total += shared[threadIdx.x + k * side];
    return total;
}

// Writes the gradients. A block has an input and, without a norm, COLUMNS columns. The last blocks have the biases.
extern "C" __global__ void __launch_bounds__(1024) encode_gradients(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);  // [threads]
    constexpr int side = NORM ? (out_stride < 128 ? out_stride : 128) : COLUMNS, across = NORM ? 1 : (out_stride + side - 1) / side;
    const int input = blockIdx.x / across, step = input - IN;
    const bool biases = step == MORE_IN, more = step >= 0 && !biases, normed = NORM && more;
    const int row = biases ? in_stride : more ? 4 * x_quads + step : input;
    float of_weight = 0.0f, of_bias = 0.0f;  // of the norm
    wait_for_previous();
    const float weight = normed ? p.norm_weight[step] : 1.0f, bias = normed ? p.norm_bias[step] : 0.0f;
    for (int first = blockIdx.x % across * side; first < out_stride; first += across * side) {
        const int column = first + threadIdx.x % side, other = column - 4 * first_quad;
        const bool of_x = column < OUT, of_walks = other >= 0 && other < MORE_OUT, wanted = biases ? of_x || of_walks : more ? of_walks : of_x;
        const float total = sum_parts(p, shared, row * out_stride + column, wanted, side);
        const float columns = normed ? sum_parts(p, shared, in_stride * out_stride + column, wanted, side) : 0.0f;
        if (threadIdx.x >= side || !wanted) continue;
        if (biases) {
            if (of_x && p.grad_bias != nullptr) p.grad_bias[column] = total;
            if (of_walks && p.grad_walk_bias != nullptr) p.grad_walk_bias[other] = total;
        } else if (more) {
            const size_t index = size_t(other) * MORE_IN + step;
            p.grad_walk_weight[index] = fmaf(weight, total, bias * columns);
            if (normed) of_weight = fmaf(p.walk_weight[index], total, of_weight), of_bias = fmaf(p.walk_weight[index], columns, of_bias);
        } else {
            p.grad_weight[size_t(column) * IN + input] = total;
        }
    }
    if (!normed) return;
    of_weight = sum_lanes(shared, of_weight, side), of_bias = sum_lanes(shared, of_bias, side);
    if (threadIdx.x == 0) p.grad_norm_weight[step] = of_weight, p.grad_norm_bias[step] = of_bias;
}
