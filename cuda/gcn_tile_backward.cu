// Gradients of all graph convolutions in one launch, the same bits on every run.
//
// With V = D^-1/2 dZ and P = (A + I) D^-1/2 H, which forward saved, a layer's gradients are dW^T = P^T V and dH = D^-1/2 (A + I) V W. A
// group of warps walks its tile from the last layer to the first, with dH in registers and V in its buffer. A block adds its tiles' weight
// gradients up in the order of the tiles, whichever group is faster (`turn`). After a barrier over the grid the blocks' sums are added up
// in the order of the blocks.
#define SMALL_TERMS_IN_BF16 1
#include "gcn_tile_pool.cuh"
#include "gcn_tile_reduce.cuh"

// Where nothing is added to the pulled rows, their factors D^-1/2 are multiplied together with those of V: dH is then d times `scale`,
// except in the last layer.
constexpr bool late = NORM == NORM_NONE && !RESIDUAL;

// Takes d through dropout, relu and norm of a layer, if it has them, to the gradient of Â H W + b. Adds up the column sums.
template <bool large>
__device__ __forceinline__ void through_activation(Features& d, const uint32 (&masks)[mask_words], Columns& columns,
                                                   const Neighbours<large>& neighbours, const unsigned char* buffer, const Parameters& p,
                                                   const Group& group, const Tile& tile, int first_row, int layer) {
    const Layer& it = p.layers[layer];
    each_row([&](int m, int half) {
        const int row = first_row + group.row(m, half), node = tile.first_node + row;
        const bool there = row < tile.num_nodes;
        float x[spans][own], along = 0.0f, sum = 0.0f;
        const float dropout_scale = activated(p, layer) ? p.dropout_scale : 1.0f, atoms = neighbours.atoms_of(buffer, p.bonds, tile, group, m, half);
        const float deviation = NORM == NORM_LAYER && there ? __ldg(p.deviations + size_t(layer) * p.num_nodes + node) : 0.0f;
#pragma unroll
        for (int c = 0; c < spans; c++) {
            float weight[own], variance[own];
            if constexpr (NORM != NORM_NONE) {
                read_columns(weight, it.norm_weight, group, c);
                if (NORM == NORM_BATCH) read_columns(variance, it.variance, group, c);
                const float* kept = row_columns(p.normalised + size_t(layer) * p.num_nodes * width, group, node, c);
#pragma unroll
                for (int e = 0; e < own; e += 4) read4(x[c] + e, kept, e, there ? own : 0, true);
            }
#pragma unroll
            for (int e = 0; e < own; e++) {
                float& g = d.at(m, half, c, e);
                const int bit = ((m * 2 + half) * spans + c) * own + e;
                g = through_relu(masks[bit / 32] & 0x80000000u >> bit % 32, g, DROPOUT ? dropout_scale : 1.0f);
                if constexpr (NORM != NORM_NONE) {
                    columns.v[sums - 2][c][e] += atoms * g;
                    columns.v[sums - 1][c][e] += atoms * g * x[c][e];
                    g *= weight[e];
                    if (NORM == NORM_BATCH) g *= 1.0f / sqrtf(variance[e] + p.eps);
                    sum += g;
                    along += g * x[c][e];
                }
            }
        }
        if constexpr (NORM == NORM_LAYER) {
            sum += shuffle_xor(sum, 1), along += shuffle_xor(along, 1);
            sum += shuffle_xor(sum, 2), along += shuffle_xor(along, 2);
            sum *= 1.0f / HIDDEN, along *= 1.0f / HIDDEN;
#pragma unroll
            for (int c = 0; c < spans; c++)
#pragma unroll
                for (int e = 0; e < own; e++) {
                    float& g = d.at(m, half, c, e);
                    g = span * c + own * group.t + e < HIDDEN ? through_norm(deviation, g, x[c][e], sum, along) : 0.0f;
                }
        }
    });
}

// d += G W for columns base .. base + width of W [H, columns], with G = (A + I) V
template <bool large>
__device__ __forceinline__ void input_gradient(Features& d, const Neighbours<large>& neighbours, const unsigned char* buffer, const Parameters& p,
                                               const Tile& tile, const Group& lanes, int layer, int base) {
#pragma unroll 1
    for (int b = 0; b < spans; b++) {
        const Group group = lanes.again();
        const auto weights = [&](int j) {
            const size_t block = (size_t(layer - 1) * spans + b) * column_tiles + j;
            if (!INPUT_GRADIENT || layer > 0) return load(p.transposed + 32 * block * rounded_bytes, group.lane);
            const int in = base + tile_column(j, group.g), out = first_column(b, group.t);
            float v[own];
#pragma unroll
            for (int e = 0; e < own; e++)
                v[e] = in < p.num_features && out + e < HIDDEN ? __ldg(p.layers[0].weight + size_t(out + e) * p.num_features + in) : 0.0f;
            return rounded(segment(v));
        };
        const auto own_row = [&](int m, int half) { return neighbours.own_row(buffer, tile, group, b, m, half); };
        multiply_pulled(d, neighbours, buffer, p, tile, group, b, weights, own_row, [](int, int, const Segment&) {});
    }
}

__device__ __forceinline__ void prefetch_pulled(const Parameters& p, const Group& group, const Tile& tile, int layer) {
    if (layer < 0) return;
    const unsigned char* begin = pulled_rows(p, tile, layer);
    for (int i = 128 * (32 * group.warp + group.lane); i < tile.num_nodes * row_bytes; i += 128 * 32 * WARPS) prefetch(begin + i);
}

// Discards a layer's saved features from the cache, in the lines that hold nothing else. All warps of the group must have read them.
__device__ __forceinline__ void discard_pulled(const Parameters& p, const Group& group, const Tile& tile, int layer) {
    if (layer < p.discard_from || layer >= p.num_layers) return;
    const size_t at = reinterpret_cast<size_t>(pulled_rows(p, tile, layer));
    unsigned char* begin = reinterpret_cast<unsigned char*>((at + 127) / 128 * 128);
    const int bytes = static_cast<int>((at + size_t(tile.num_nodes) * row_bytes) / 128 * 128 - reinterpret_cast<size_t>(begin));
    for (int i = 128 * (32 * group.warp + group.lane); i < bytes; i += 128 * 32 * WARPS) discard(begin + i);
}

// Loads a large molecule's dH from global memory into registers; store_rows writes it back.
__device__ __forceinline__ void load_rows(Features& d, const float* rows, const Group& group, const Tile& tile, int first_row) {
    each_row([&](int m, int half) {
        const int row = first_row + group.row(m, half);
#pragma unroll
        for (int c = 0; c < spans; c++)
#pragma unroll
            for (int e = 0; e < own; e++)
                d.at(m, half, c, e) = row < tile.num_nodes ? rows[size_t(row) * width + span * c + own * group.t + e] : 0.0f;
    });
}
__device__ __forceinline__ void store_rows(Features& d, float* rows, const Group& group, const Tile& tile, int first_row) {
    each_row([&](int m, int half) {
        const int row = first_row + group.row(m, half);
        if (row >= tile.num_nodes) return;
#pragma unroll
        for (int c = 0; c < spans; c++)
#pragma unroll
            for (int e = 0; e < own; e++) rows[size_t(row) * width + span * c + own * group.t + e] = d.at(m, half, c, e);
    });
}

__device__ __forceinline__ void read_masks(uint32 (&masks)[mask_words], const Parameters& p, const Group& group, const Tile& tile, int first_row,
                                           int layer) {
#pragma unroll
    for (int i = 0; i < mask_words; i++)
        masks[i] = layer >= 0 && activated(p, layer) ? __ldg(p.masks + mask_at(p, group, tile, first_row, layer) + 32 * i) : ~0u;
}

template <bool large>
__device__ __forceinline__ void backward(const Parameters& p, const Group& lanes, const Tile& tile, unsigned char* buffer, unsigned char* staged,
                                         float* total, const Sums& at, const Order& order) {
    const size_t plane = size_t(p.num_nodes) * stride;
    unsigned char* scaled = large ? p.scratch + size_t(tile.first_node) * stride : buffer;                     // V
    float* gradient = reinterpret_cast<float*>(p.scratch + plane) + size_t(tile.first_node) * width;  // dH of a large molecule
    const int end_row = large ? tile.num_nodes : 1;
    Neighbours<large> neighbours;
    Features d;
    uint32 masks[mask_words];

    if constexpr (!large) {
        neighbours.recall(p.neighbours + size_t(tile.index) * neighbours.kept_bytes, tile, buffer, lanes);
        if (packed) stage_ins(staged, p, lanes, tile, p.num_layers - 1, 0, 0);
    }
    share<large>(p, lanes, tile, scaled);
    lanes.sync();
    for (int first_row = 0; first_row < end_row; first_row += tile_rows) {
        each_segment([&](int m, int half, int b) {
            const bool there = first_row + lanes.row(m, half) < tile.num_nodes;
            const Segment s = there ? load(scaled + lanes.own_offset(first_row, m, half, b)) : zeros();
#pragma unroll
            for (int e = 0; e < own; e++) d.at(m, half, b, e) = value(s, e) + 0.0f;
        });
        if (large) store_rows(d, gradient, lanes, tile, first_row);
    }
    if constexpr (!large) read_masks(masks, p, lanes, tile, 0, p.num_layers - 1);

#pragma unroll 1
    for (int layer = p.num_layers - 1; layer >= 0; layer--) {
        const Group group = lanes.again();
        if (!large) prefetch_pulled(p, group, tile, layer - 1);
        HalfColumns halves = {};
        Features outer;  // the residual connection's gradient
        group.sync();    // the last use of the buffer is over
        if (!packed || large) discard_pulled(p, group, tile, layer + 1);
#pragma unroll 1
        for (int first_row = 0; first_row < end_row; first_row += tile_rows) {
            if constexpr (large) {
                neighbours.find(p.bonds, tile, group, first_row);
                read_masks(masks, p, group, tile, first_row, layer);
                load_rows(d, gradient, group, tile, first_row);
                group.sync();
                if (packed) stage_ins(staged, p, group, tile, layer, first_row, 0);
            }
            Columns columns = {};
            if (RESIDUAL && !large) outer = d;
            if (NORM == NORM_NONE || activated(p, layer)) through_activation(d, masks, columns, neighbours, buffer, p, group, tile, first_row, layer);
            each_row([&](int m, int half) {
                const int row = first_row + group.row(m, half);
                const float scale = neighbours.scale[m][half], before = late && layer < p.num_layers - 1 ? scale : 1.0f;
                const float weight = neighbours.atoms_of(buffer, p.bonds, tile, group, m, half) * before;
#pragma unroll
                for (int c = 0; c < spans; c++)
#pragma unroll
                    for (int e = 0; e < own; e++) columns.v[0][c][e] += weight * d.at(m, half, c, e);
#pragma unroll
                for (int b = 0; b < spans; b++) {
                    const Segment v = d.get(m, half, b, before * scale);
                    store(buffer + group.own_offset(0, m, half, b), v);
                    if (large && row < tile.num_nodes) store(scaled + group.own_offset(first_row, m, half, b), v);
                }
            });
            halves.add(columns, group);
            if constexpr (!large) read_masks(masks, p, group, tile, 0, layer - 1);  // the next layer's masks, loaded meanwhile
            if (packed) wait_for_copies();
            group.sync();
            if (packed && !large) discard_pulled(p, group, tile, layer);  // the features are staged by now
            weight_gradient<large>(halves, p, group, tile, buffer, staged, layer, first_row, 0, total, at, order);
            for (int base = width; WIDE_INPUT && packed && base < in_width(p, layer); base += width) {
                group.sync();
                stage_ins(staged, p, group, tile, layer, first_row, base);
                wait_for_copies();
                group.sync();
                weight_gradient<large>(halves, p, group, tile, buffer, staged, layer, first_row, base, total, at, order);
            }
        }
        if (layer == 0 && !INPUT_GRADIENT) break;
        if (packed && !large && layer > 0) {
            if (WARPS > 1) group.sync();
            stage_ins(staged, p, group, tile, layer - 1, 0, 0);
        }
        if (large) group.sync();
#pragma unroll 1
        for (int first_row = 0; first_row < end_row; first_row += tile_rows) {
            if constexpr (large) neighbours.find(p.bonds, tile, group, first_row);
            const bool residual = RESIDUAL && (layer > 0 || p.num_features == HIDDEN);
#pragma unroll 1
            for (int base = 0; base < (INPUT_GRADIENT && layer == 0 ? p.num_features : 1); base += width) {
                d.zero();
                input_gradient(d, neighbours, scaled, p, tile, group, layer, base);
                if (residual && large) load_rows(outer, gradient, group, tile, first_row);
                each_row([&](int m, int half) {
                    const float scale = neighbours.scale[m][half];
#pragma unroll
                    for (int j = 0; j < column_tiles; j++)
#pragma unroll
                        for (int e = 2 * half; e < 2 * half + 2; e++) {
                            if (!late) d.v[m][j][e] *= scale;
                            if (RESIDUAL && residual) d.v[m][j][e] += outer.v[m][j][e];
                        }
                    const int row = first_row + group.row(m, half);
                    if (!INPUT_GRADIENT || layer > 0 || row >= tile.num_nodes) return;
                    float* to = p.grad_x + size_t(tile.first_node + atom_at<large>(scaled, row)) * p.num_features;
                    const float atoms = neighbours.atoms_of(buffer, p.bonds, tile, group, m, half);
#pragma unroll
                    for (int c = 0; c < spans; c++)
#pragma unroll
                        for (int e = 0; e < own; e++) {
                            const int column = base + span * c + own * group.t + e;
                            if (column < p.num_features) to[column] = atoms * (late ? scale : 1.0f) * d.at(m, half, c, e);
                        }
                });
                if (large && layer > 0) store_rows(d, gradient, group, tile, first_row);
            }
        }
    }
    lanes.sync();
}

__device__ __noinline__ void backward_large(const Parameters& p, const Tile tile, unsigned char* buffer, unsigned char* staged, float* total,
                                            const Sums at, const Order order) {
    backward<true>(p, Group(threadIdx.x), tile, buffer, staged, total, at, order);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1) gcn_tile_backward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    const Group group(threadIdx.x);
    const Sums at(p);
    constexpr int staged_bytes = packed ? tile_rows * stride : 0;
    unsigned char* buffer = one_address(shared + group.index * buffer_bytes);
    unsigned char* staged = one_address(shared + group.count * buffer_bytes + group.index * staged_bytes);
    float* sums_begin = reinterpret_cast<float*>(shared + group.count * (buffer_bytes + staged_bytes));
    float* total = SHARED_GRADIENTS ? sums_begin : p.totals + size_t(blockIdx.x) * at.size();
    int* turns = reinterpret_cast<int*>(sums_begin + (SHARED_GRADIENTS ? at.size() : 0));
    for (int i = threadIdx.x; i < at.turns(); i += blockDim.x) turns[i] = 0;
    clear_last_row(group, buffer);
    wait_for_previous();
    if (LOSS) write_head_gradients(p);
    const int end = __ldg(p.tile_ptr + p.num_tiles);
    if (INPUT_GRADIENT) {
        const int num_nodes = __ldg(p.ptr + end);
        clear(p.grad_x, size_t(num_nodes) * p.num_features, size_t(p.num_nodes) * p.num_features);
    }
    __syncthreads();
    for (int i = group.index; blockIdx.x + gridDim.x * i < p.num_tiles; i += group.count) {
        const int index = blockIdx.x + gridDim.x * i;
        if (i > 0 && !is_filled(p, index, end)) break;  // the first tile of a block sets its sums
        Tile tile = find_tile(p, index);
        if (breaks_promise(tile)) {
            const size_t first = tile.first_node;
            if (INPUT_GRADIENT) fill_nan(p.grad_x, first * p.num_features, (first + tile.num_nodes) * p.num_features, group);
            tile = without_molecules(tile);
        }
        const Order order = {turns, i, !is_filled(p, index + gridDim.x, end)};
        if (LARGE_MOLECULES && tile.num_nodes > tile_rows)
            backward_large(p, tile, buffer, staged, total, at, order);
        else
            backward<false>(p, group, tile, buffer, staged, total, at, order);
    }
    __syncthreads();
    hand_in_columns(p, at, total);
    grid_barrier(p.arrivals);
    reduce(p, at);
    leave_barrier(p.arrivals);
}
