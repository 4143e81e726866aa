// `molgcn::gcn_stack`: all layers and the pooling in one launch. A persistent block a multiprocessor, a group of warps a tile.
#include "gcn_stack_pool.cuh"

// sum += (pulled features) W^T for columns base .. base + width of W [H, columns]; without the rows' factors D^-1/2
template <bool large, bool first>
__device__ __forceinline__ void convolve(Features& sum, const Neighbours<large>& neighbours, const float* buffer, const Bonds& bonds,
                                         const Tile& tile, const Group& group, const float* weight, int base, int columns) {
    constexpr int steps = chunks / wide;
    const float* corner = weight + 2 * group.g * HIDDEN + 4 * group.t;
    const auto read_weights = [&](float(&w)[wide][2][4], int c, int p) {
#pragma unroll
        for (int i = 0; i < wide; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (first || padded || !ALIGNED) {
                    const int out = 16 * (p + i) + 2 * group.g + j, in = base + 16 * c + 4 * group.t;
                    read4(w[i][j], weight + size_t(out) * columns, in, out < HIDDEN ? columns : 0, ALIGNED && !first);
                } else {
                    const float4 x = __ldg(reinterpret_cast<const float4*>(corner + 16 * c + (16 * (p + i) + j) * HIDDEN));
                    w[i][j][0] = x.x, w[i][j][1] = x.y, w[i][j][2] = x.z, w[i][j][3] = x.w;
                }
            }
    };
#pragma unroll 1
    for (int c = 0; c < chunks; c += wide) {
        if (first && base + 16 * c >= columns) break;
        float w[wide][2][4];
        read_weights(w, c, 0);  // under way while neighbours are pulled
        float4 pulled[wide][ROW_TILES][2];
        neighbours.pull(pulled, buffer, bonds, tile, group, c);
        matrix::Left a[ROW_TILES];
#pragma unroll
        for (int step = 0; step < wide * steps; step++) {
            if (step % steps == 0)
#pragma unroll
                for (int m = 0; m < ROW_TILES; m++) a[m] = matrix::left(pulled[step / steps][m]);
            matrix::Right b[wide][2];
#pragma unroll
            for (int i = 0; i < wide; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) b[i][j] = matrix::right(w[i][j]);
            const int next = step + 1, p = step % steps * wide;
            if (next < wide * steps) read_weights(w, c + next / steps, next % steps * wide);
            matrix::multiply_add<ROW_TILES, wide>([&](int m, int i) -> float(&)[2][4] { return sum.v[m][p + i]; }, a, b);
        }
    }
}

// Layer norm over the H columns of each row, or batch norm with running statistics; keeps the normalised values for backward.
__device__ __forceinline__ void normalise(Features& z, const Parameters& p, const Group& group, const Tile& tile, int first_row, int layer) {
    const Layer& it = p.layers[layer];
    float mean[ROW_TILES][2] = {}, deviation[ROW_TILES][2] = {};
    if constexpr (NORM == NORM_LAYER) {
#pragma unroll
        for (int moment = 1; moment <= 2; moment++) {
            float sum[ROW_TILES][2] = {};
            each_four([&](int m, int half, int c) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (16 * c + 4 * group.t + e < HIDDEN) {
                        const float x = z.at(m, half, c, e) - mean[m][half];
                        sum[m][half] += moment == 1 ? x : x * x;
                    }
            });
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float s = sum[m][half];
                    s += shuffle_xor(s, 1);
                    s += shuffle_xor(s, 2);
                    if (moment == 1)
                        mean[m][half] = s * (1.0f / HIDDEN);
                    else
                        deviation[m][half] = 1.0f / sqrtf(s * (1.0f / HIDDEN) + p.eps);
                }
        }
    }
#pragma unroll
    for (int c = 0; c < chunks; c++) {
        float weight[4], bias[4], running_mean[4] = {}, variance[4] = {};
        read_columns(weight, it.norm_weight, group, c);
        read_columns(bias, it.norm_bias, group, c);
        if constexpr (NORM == NORM_BATCH) {
            read_columns(running_mean, it.mean, group, c);
            read_columns(variance, it.variance, group, c);
        }
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = first_row + group.row(m, half);
                float x[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float value = z.at(m, half, c, e);
                    x[e] = NORM == NORM_LAYER ? (value - mean[m][half]) * deviation[m][half]
                                              : (value - running_mean[e]) * (1.0f / sqrtf(variance[e] + p.eps));
                    z.at(m, half, c, e) = x[e] * weight[e] + bias[e];
                }
                if (SAVE && row < tile.num_nodes) {
                    store_own<true>(p.normalised + at_node(p, layer, tile.first_node), group, first_row, m, half, c, four(x));
                    if (NORM == NORM_LAYER && c == 0 && group.t == 0)
                        p.deviations[size_t(layer) * p.num_nodes + tile.first_node + row] = deviation[m][half];
                }
            }
    }
}

// relu and dropout; keeps which activations came through
__device__ __forceinline__ void activate(Features& h, const Parameters& p, const Group& group, const Tile& tile, int first_row, int layer) {
    const uint64 seed = DROPOUT ? *p.seed : 0;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + group.row(m, half), node = tile.first_node + row;
            uint32 mask = 0;
#pragma unroll
            for (int c = 0; c < chunks; c++) {
                Words words;
                if (DROPOUT) words = philox(node, 4 * c + group.t, layer, 0, seed);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float& y = h.at(m, half, c, e);
                    const bool kept = !DROPOUT || words.word[e] >= p.dropout_threshold;
                    if (SAVE && y > 0.0f && kept) mask |= 1u << (4 * (c & 1) + e);
                    y = relu(y);
                    if (DROPOUT) y = kept ? y * p.dropout_scale : 0.0f;
                }
                if (SAVE && ((c & 1) || c == chunks - 1)) {
                    if (row < tile.num_nodes)
                        p.masks[(size_t(layer) * p.num_nodes + node) * mask_bytes + 4 * (c >> 1) + group.t] = static_cast<unsigned char>(mask);
                    mask = 0;
                }
            }
        }
}

template <bool large>
__device__ __forceinline__ void forward(const Parameters& p, const Group& group, const Tile& tile, float* shared) {
    const size_t plane = size_t(p.num_nodes) * width, origin = size_t(tile.first_node) * width;
    float* source = large ? p.scratch + origin : shared;
    float* target = large ? p.scratch + plane + origin : shared;
    float* kept = p.scratch + 2 * plane + origin;  // input of the layer, of a large molecule with residual
    const int end_row = large ? tile.num_nodes : 1;
    Neighbours<large> neighbours;
    Features h;
#pragma unroll 1
    for (int layer = 0; layer < p.num_layers; layer++) {
        const Layer& it = p.layers[layer];
#pragma unroll 1
        for (int first_row = 0; first_row < end_row; first_row += places) {
            if (large || layer == 0) neighbours.find(p.bonds, tile, group, first_row);
            Features input;
            if constexpr (RESIDUAL) {
                input = h;
                if (large || layer == 0) each_four([&](int m, int half, int c) {
                    const int row = first_row + group.row(m, half);
                    const bool there = row < tile.num_nodes;
                    float v[4] = {};
                    if (layer == 0 && p.num_features == HIDDEN) read_atoms(v, p, tile.first_node + row, there, 16 * c + 4 * group.t);
                    input.set(m, half, c, layer > 0 && there ? load_own<true>(kept, group, first_row, m, half, c) : four(v));
                });
            }
            h.zero();
            if (layer == 0) {
                for (int base = 0; base < p.num_features; base += width) {
                    group.sync();
                    for (int first = 0; first < end_row; first += places) {
                        Neighbours<large> others;
                        if constexpr (large)
                            others.find(p.bonds, tile, group, first);
                        else
                            others = neighbours;
                        each_four([&](int m, int half, int c) {
                            const int row = first + group.row(m, half);
                            const float scale = others.scale[m][half];
                            float v[4];
                            read_atoms(v, p, tile.first_node + row, row < tile.num_nodes, base + 16 * c + 4 * group.t);
#pragma unroll
                            for (int e = 0; e < 4; e++) v[e] *= scale;
                            if (!large || row < tile.num_nodes) store_own<large>(source, group, first, m, half, c, four(v));
                        });
                    }
                    group.sync();
                    convolve<large, true>(h, neighbours, source, p.bonds, tile, group, it.weight, base, p.num_features);
                }
            } else {
                convolve<large, false>(h, neighbours, source, p.bonds, tile, group, it.weight, 0, HIDDEN);
            }
#pragma unroll
            for (int c = 0; c < chunks; c++) {
                float bias[4];
                read_columns(bias, it.bias, group, c);
                each_row([&](int m, int half) {
#pragma unroll
                    for (int e = 0; e < 4; e++) h.at(m, half, c, e) = h.at(m, half, c, e) * neighbours.scale[m][half] + bias[e];
                });
            }
            if (activated(p, layer)) {
                if constexpr (NORM != NORM_NONE) normalise(h, p, group, tile, first_row, layer);
                activate(h, p, group, tile, first_row, layer);
            }
            if constexpr (RESIDUAL) each_four([&](int m, int half, int c) {
#pragma unroll
                for (int e = 0; e < 4; e++) h.at(m, half, c, e) += input.at(m, half, c, e);
            });
            if (!large) group.sync();  // all neighbours pulled
            const bool is_last = layer == p.num_layers - 1;
            each_four([&](int m, int half, int c) {
                const int row = first_row + group.row(m, half);
                float v[4], scaled[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    v[e] = h.at(m, half, c, e);
                    scaled[e] = is_last ? v[e] : v[e] * neighbours.scale[m][half];
                }
                const bool there = row < tile.num_nodes;
                if (!large || there) store_own<large>(target, group, first_row, m, half, c, four(scaled));
                if (large && RESIDUAL && there) store_own<true>(kept, group, first_row, m, half, c, four(v));
                if (SAVE && there && !is_last) store_own<true>(p.inputs + at_node(p, layer, tile.first_node), group, first_row, m, half, c, four(v));
                if (SAVE && POOL == POOL_MAX && there && is_last) store_own<true>(p.last + origin, group, first_row, m, half, c, four(v));
            });
        }
        group.sync();
        float* next = source;
        source = target, target = next;
    }
    pool<large>(p, group, tile, source);
    group.sync();
}

__device__ __noinline__ void forward_large(const Parameters& p, const Tile tile) { forward<true>(p, Group(), tile, nullptr); }

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1) gcn_stack_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    const Group group;
    float* buffer = reinterpret_cast<float*>(shared) + group.index * places * stride;
    if (SAVE && blockIdx.x == 0 && threadIdx.x < 2) p.arrivals[threadIdx.x] = 0;
    const int end = __ldg(p.tile_ptr + p.num_tiles);
    clear(p.pooled, size_t(end) * HIDDEN, size_t(p.num_graphs) * HIDDEN);
    for (int index = blockIdx.x + gridDim.x * group.index; index < p.num_tiles; index += gridDim.x * group.count) {
        const Tile tile = find_tile(p, index);
        if (tile.first_graph == end) break;  // the last tiles of a padded batch are empty
        if (tile.num_nodes <= places)
            forward<false>(p, group, tile, buffer);
        else
            forward_large(p, tile);
    }
}
