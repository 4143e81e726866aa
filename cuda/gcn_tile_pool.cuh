// Pooling of a tile's molecules, the head's linear map of it, its loss, and their gradient.
#pragma once
#include "gcn_tile.cuh"
#include "loss.cuh"

// Runs body(graph, first atom, end, column) for each molecule of a tile, with atoms counted from the tile's first. A thread has four
// adjacent columns. A molecule's columns lie side by side, and as many molecules are under way at once as the group has threads for.
template <class Body>
__device__ __forceinline__ void each_molecule(const Parameters& p, const Group& group, const Tile& tile, Body body) {
    constexpr int pieces = width / 4, at_once = 32 * WARPS / pieces;
    const int thread = 32 * group.warp + group.lane, column = thread % pieces * 4;
    for (int graph = tile.first_graph + thread / pieces; thread < at_once * pieces && graph < tile.end_graph; graph += at_once)
        body(graph, __ldg(p.ptr + graph) - tile.first_node, __ldg(p.ptr + graph + 1) - tile.first_node, column);
}

// Returns the prediction of target number `target`, for a molecule that the group has pooled.
__device__ __forceinline__ float prediction(const Parameters& p, int graph, int target) {
    const float *x = p.pooled + size_t(graph) * HIDDEN, *weight = p.head_weight + size_t(target) * HIDDEN;
    float sum = __ldg(p.head_bias + target);
#pragma unroll 32
    for (int h = 0; h < HIDDEN; h++) sum += x[h] * __ldg(weight + h);
    return sum;
}
__device__ __noinline__ void predict(const Parameters& p, const Tile& tile, int thread) {
    const int begin = tile.first_graph * p.num_targets, end = tile.end_graph * p.num_targets;
    for (int i = begin + thread; i < end; i += 32 * WARPS) p.predictions[i] = prediction(p, i / p.num_targets, i % p.num_targets);
}

// Computes the derivatives of a tile's molecules and the sums of their terms. It takes no `Tile`, which would have to lie in memory.
__device__ __noinline__ void score(const Parameters& p, int tile, int thread) {
    const int begin = __ldg(p.tile_ptr + tile) * p.num_targets, end = __ldg(p.tile_ptr + tile + 1) * p.num_targets;
    float total = 0.0f, known = 0.0f;
    for (int i = begin + thread; i < end; i += 32 * WARPS) {
        const int t = i % p.num_targets;
        const float target = __ldg(p.target + i);
        const float output = prediction(p, i / p.num_targets, t), standard = (target - __ldg(p.target_mean + t)) / __ldg(p.target_std + t);
        const bool there = target == target;
        p.derivatives[i] = there ? derivative(p.kind, output, standard, p.delta) : 0.0f;
        if (there) total += term(p.kind, output, standard, p.delta), known += 1.0f;
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) total += shuffle_xor(total, mask), known += shuffle_xor(known, mask);
    if (thread % 32 > 0) return;
    double* terms = p.terms + 2 * (size_t(tile) * WARPS + thread / 32);
    terms[0] = total, terms[1] = known;
}

// Returns the factor of every derivative: the weight of a term in the loss, times the loss's own gradient.
__device__ __forceinline__ float loss_scale(const Parameters& p) {
    const double known = p.loss_sums[1];
    return *p.grad_loss / static_cast<float>(known < 1.0 ? 1.0 : known);
}

// Writes the head's gradients. All blocks share the work, the last ones first, since they have the fewest tiles.
__device__ __forceinline__ void write_head_gradients(const Parameters& p) {
    const int weights = p.num_targets * HIDDEN, first = (gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x;
    for (int i = first; i < weights + p.num_targets; i += gridDim.x * blockDim.x)
        (i < weights ? p.grad_head_weight[i] : p.grad_head_bias[i - weights]) = loss_scale(p) * p.head_sums[i];
}

// Computes the mean, sum or max over each molecule's rows, and the head's output.
template <bool large>
__device__ __forceinline__ void pool(const Parameters& p, const Group& group, const Tile& tile, const unsigned char* buffer) {
    each_molecule(p, group, tile, [&](int graph, int begin, int end, int column) {
        float total[4], atoms = 0.0f;
#pragma unroll
        for (float& x : total) x = POOL == POOL_MAX && end > begin ? number(0xff800000u) : 0.0f;
#pragma unroll 4
        for (int atom = begin; atom < end; atom++) {
            float x[4];
            get4(x, buffer, begin_of<large>(buffer, atom), column);
            const float copies = copies_at<large>(buffer, p.bonds, tile, row_of<large>(buffer, atom));
            if (MERGED_LEAVES) atoms += copies;
#pragma unroll
            for (int i = 0; i < 4; i++)
                total[i] = POOL == POOL_MAX ? (x[i] > total[i] || x[i] != x[i] ? x[i] : total[i])
                           : MERGED_LEAVES  ? fmaf(copies, x[i], total[i])
                                            : total[i] + x[i];
        }
        if (!MERGED_LEAVES) atoms = static_cast<float>(end - begin);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (column + i < HIDDEN)
                p.pooled[size_t(graph) * HIDDEN + column + i] =
                    POOL == POOL_MEAN && end > begin ? total[i] / atoms : total[i];
    });
    group.sync();
    if (!SAVE && p.num_targets > 0) predict(p, tile, 32 * group.warp + group.lane);
}

// Writes NaN for the molecules of a tile that breaks the promise of `large_molecules`.
__device__ __forceinline__ void pool_nan(const Parameters& p, const Group& group, const Tile& tile) {
    fill_nan(p.pooled, size_t(tile.first_graph) * HIDDEN, size_t(tile.end_graph) * HIDDEN, group);
    if (!SAVE) fill_nan(p.predictions, size_t(tile.first_graph) * p.num_targets, size_t(tile.end_graph) * p.num_targets, group);
}

// Writes 0 for the padding's molecules, from `end` on; all blocks share the work.
__device__ __forceinline__ void pool_none(const Parameters& p, int end) {
    clear(p.pooled, size_t(end) * HIDDEN, size_t(p.num_graphs) * HIDDEN);
    const int first = end * p.num_targets + blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; !SAVE && i < p.num_graphs * p.num_targets; i += gridDim.x * blockDim.x)
        p.predictions[i] = __ldg(p.head_bias + i % p.num_targets);
    if (LOSS) clear(p.derivatives, size_t(end) * p.num_targets, size_t(p.num_graphs) * p.num_targets);
}

// Reads four columns of the gradient of a pooled molecule.
__device__ __forceinline__ void read_gradient(float (&gradient)[4], const Parameters& p, int graph, int column, float factor) {
    if (!LOSS) return read4(gradient, p.grad_pooled + size_t(graph) * HIDDEN, column, HIDDEN, false);
#pragma unroll
    for (float& x : gradient) x = 0.0f;
    for (int t = 0; t < p.num_targets; t++) {
        float weight[4];
        read4(weight, p.head_weight + size_t(t) * HIDDEN, column, HIDDEN, false);
        const float derivative = factor * __ldg(p.derivatives + size_t(graph) * p.num_targets + t);
#pragma unroll
        for (int i = 0; i < 4; i++) gradient[i] += derivative * weight[i];
    }
}

// Distributes the gradient of the pooled molecules to the rows of `shares`. With max, equal largest atoms take equal shares.
template <bool large>
__device__ __forceinline__ void share(const Parameters& p, const Group& group, const Tile& tile, unsigned char* shares) {
    const float *last = p.last + size_t(tile.first_node) * width, factor = LOSS ? loss_scale(p) : 1.0f;
    each_molecule(p, group, tile, [&](int graph, int begin, int end, int column) {
        float gradient[4], largest[4], x[4];
        read_gradient(gradient, p, graph, column, factor);
        float atoms = MERGED_LEAVES ? 0.0f : static_cast<float>(end - begin);
#pragma unroll 4
        for (int atom = begin; MERGED_LEAVES && atom < end; atom++) atoms += copies_at<large>(shares, p.bonds, tile, row_of<large>(shares, atom));
        const float mean = 1.0f / atoms;
#pragma unroll
        for (int i = 0; i < 4; i++) gradient[i] *= POOL == POOL_MEAN ? mean : 1.0f, largest[i] = number(0xff800000u);
        if constexpr (POOL == POOL_MAX) {
            float equal[4] = {};
            for (int atom = begin; atom < end; atom++) {
                read4(x, last + size_t(atom) * width, column, width, true);
#pragma unroll
                for (int i = 0; i < 4; i++) largest[i] = fmaxf(largest[i], x[i]);
            }
            for (int atom = begin; atom < end; atom++) {
                read4(x, last + size_t(atom) * width, column, width, true);
#pragma unroll
                for (int i = 0; i < 4; i++) equal[i] += x[i] == largest[i] ? copies_at<large>(shares, p.bonds, tile, row_of<large>(shares, atom)) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) gradient[i] = equal[i] > 0.0f ? gradient[i] / equal[i] : 0.0f;
        }
#pragma unroll 4
        for (int atom = begin; atom < end; atom++) {
            if (POOL == POOL_MAX) read4(x, last + size_t(atom) * width, column, width, true);
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = POOL != POOL_MAX || x[i] == largest[i] ? gradient[i] : 0.0f;
            put4(shares, begin_of<large>(shares, atom), column, x);
        }
    });
}
