// `molgcn::layer_network` for graph convolutions: all layers and the pooling in one launch. There is one persistent block on each multiprocessor, and each of
// its groups of warps takes one tile at a time.
#include "gcn_tile_pool.cuh"
#include "gcn_tile_weights.cuh"

// bf16 features go through relu where they are packed, in the same instruction.
constexpr bool clamps = packed && !RESIDUAL && !(SAVE && POOL == POOL_MAX);

// A layer's spans follow each other in the code where registers suffice. The loads of one are then under way while another is multiplied.
constexpr bool straight = spans <= 2 && !(SAVE && (MAX_THREADS > 384 || NORM != NORM_NONE));
// A lane's own rows of the first span, which stay in registers from layer to layer.
struct OwnRows {
    Segment row[ROW_TILES][2];
};

// sum += (pulled features) W^T for the input columns from `base` on, without the rows' factors D^-1/2.
template <bool large, bool first>
__device__ __forceinline__ void convolve(Features& sum, const Neighbours<large>& neighbours, const unsigned char* buffer, const Parameters& p,
                                         const Tile& tile, const Group& lanes, const Segment* shared, int layer, int base, const OwnRows& own_rows) {
    const int kept_bytes = in_width(p, first ? 0 : layer) * number_bytes;
    const int first_row = neighbours.first_row + lanes.row(0, 0), rows_left = tile.num_nodes - first_row;
    unsigned char* kept = pulled_rows(p, tile, first ? 0 : layer) + size_t(first_row) * kept_bytes + (base + first_column(0, lanes.t)) * number_bytes;
    const float* weight = p.layers[layer].weight;
    shared += layer * spans * column_tiles * 32;
    constexpr bool whole = straight && !large && !first;
#pragma unroll(whole ? spans : 1)
    for (int b = 0; b < spans; b++) {
        const Group group = lanes.again();
        if ((first || layer == 0) && base + span * b >= p.num_features) {  // padding
            if (SAVE && base + span * b < in_width(p, 0)) each_row([&](int m, int half) {
                const int row = lanes.rows_on(m, half);
                if (row < rows_left) store(kept + row * kept_bytes, zeros());
            });
            kept += span * number_bytes;
            continue;
        }
        const auto weights = [&](int j) {
            if (SHARED_WEIGHTS && !(first && first_apart)) return shared[(b * column_tiles + j) * 32 + group.lane];
            return read_weights<first>(p, weight, base, b, j, group);
        };
        const auto own_row = [&](int m, int half) {
            return whole && b == 0 && SELF_LOOPS ? own_rows.row[m][half] : neighbours.own_row(buffer, tile, group, b, m, half);
        };
        multiply_pulled(sum, neighbours, buffer, p, tile, group, b, weights, own_row, [&](int m, int half, const Segment& pulled) {
            const int row = lanes.rows_on(m, half);
            if (SAVE && row < rows_left) store(kept + row * kept_bytes, MERGED_LEAVES ? times(pulled, neighbours.atoms_of(buffer, p.bonds, tile, group, m, half)) : pulled);
        });
        kept += span * number_bytes;
    }
}

// Returns minus the layer norm over the H columns of each row, or minus the batch norm with running statistics. Saves the normalised values
// for backward.
__device__ __forceinline__ void normalise(Features& z, const Parameters& p, const Group& group, const Tile& tile, int first_row, int layer) {
    const Layer& it = p.layers[layer];
    float mean[ROW_TILES][2] = {}, deviation[ROW_TILES][2] = {};
    if constexpr (NORM == NORM_LAYER) {
#pragma unroll
        for (int moment = 1; moment <= 2; moment++) {
            float sum[ROW_TILES][2] = {};
            each_row([&](int m, int half) {
#pragma unroll
                for (int c = 0; c < spans; c++)
#pragma unroll
                    for (int e = 0; e < own; e++)
                        if (span * c + own * group.t + e < HIDDEN) {
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
    for (int c = 0; c < spans; c++) {
        float weight[own], bias[own], running_mean[own] = {}, variance[own] = {};
        read_columns(weight, it.norm_weight, group, c);
        read_columns(bias, it.norm_bias, group, c);
        if constexpr (NORM == NORM_BATCH) {
            read_columns(running_mean, it.mean, group, c);
            read_columns(variance, it.variance, group, c);
        }
        each_row([&](int m, int half) {
            const int row = first_row + group.row(m, half), node = tile.first_node + row;
            float* kept = row_columns(p.normalised + size_t(layer) * p.num_nodes * width, group, node, c);
#pragma unroll
            for (int e = 0; e < own; e++) {
                const float value = z.at(m, half, c, e);
                const float x = NORM == NORM_LAYER ? (value - mean[m][half]) * deviation[m][half]
                                                   : (value - running_mean[e]) * (1.0f / sqrtf(variance[e] + p.eps));
                z.at(m, half, c, e) = 0.0f - (x * weight[e] + bias[e]);  // negated, as `activate` takes it
                if (SAVE && row < tile.num_nodes) kept[e] = x;
            }
            if (SAVE && NORM == NORM_LAYER && c == 0 && group.t == 0 && row < tile.num_nodes)
                p.deviations[size_t(layer) * p.num_nodes + node] = deviation[m][half];
        });
    }
}

// Applies relu and dropout to -n and saves which activations are kept. Because n is negated, positive values are those with a sign bit:
// zeros have none.
template <bool large>
__device__ __forceinline__ void activate(Features& n, const Parameters& p, const Group& group, const Tile& tile, const unsigned char* buffer,
                                         int first_row, int layer) {
    const uint64 seed = DROPOUT ? *p.seed : 0;
    uint32 mask = 0;
    uint32* masks = p.masks + (SAVE ? mask_at(p, group, tile, first_row, layer) : 0);
    each_row([&](int m, int half) {
        const int row = first_row + group.row(m, half), atom = DROPOUT && row < tile.num_nodes ? atom_at<large>(buffer, row) : 0;
#pragma unroll
        for (int c = 0; c < spans; c++) {
            Words random;
#pragma unroll
            for (int e = 0; e < own; e++) {
                if (DROPOUT && e % 4 == 0) random = philox(tile.first_node + atom, (span * c + own * group.t + e) / 4, layer, 0, seed);
                float& y = n.at(m, half, c, e);
                const bool kept = !DROPOUT || random.word[e % 4] >= p.dropout_threshold;
                const int bit = ((m * 2 + half) * spans + c) * own + e;
                if (SAVE) mask = push_sign(mask, kept ? y : 0.0f);
                y = clamps ? -y : relu(-y);
                if (DROPOUT) y = dropped(kept, y, p.dropout_scale);
                if (SAVE && bit == mask_bits - 1) mask <<= (32 - mask_bits % 32) % 32;
                if (SAVE && (bit % 32 == 31 || bit == mask_bits - 1)) masks[bit / 32 * 32] = mask;
            }
        }
    });
}

// Loads the input times D^-1/2: columns base .. base + width of the rows from `first_row` on.
template <bool large>
__device__ __forceinline__ void load_atoms(unsigned char* buffer, const Neighbours<large>& neighbours, const Parameters& p, const Group& group,
                                           const Tile& tile, int first_row, int base) {
    Neighbours<large> others = neighbours;
    if constexpr (large) others.find(p.bonds, tile, group, first_row);
#pragma unroll(spans <= 2 ? spans : 1)
    for (int b = 0; b < spans; b++) {
        if (base + span * b >= p.num_features) break;  // nobody reads it
        each_row([&](int m, int half) {
            const int row = first_row + group.row(m, half), column = base + first_column(b, group.t);
            const bool there = row < tile.num_nodes;
            if (large && !there) return;
            const float* from = p.x + size_t(tile.first_node + (there ? atom_at<large>(buffer, row) : 0)) * p.num_features;
            float v[own];
#pragma unroll
            for (int e = 0; e < own; e++)
                v[e] = there && column + e < p.num_features ? others.scale[m][half] * __ldg(from + column + e) : 0.0f;
            store(buffer + group.own_offset(first_row, m, half, b), segment(v));
        });
    }
}

template <bool large>
__device__ __forceinline__ void forward(const Parameters& p, const Group& lanes, const Tile& tile, unsigned char* buffer, Segment* weights) {
    const size_t plane = size_t(p.num_nodes) * stride, origin = size_t(tile.first_node) * stride;
    unsigned char* source = large ? p.scratch + origin : buffer;
    unsigned char* target = large ? p.scratch + plane + origin : buffer;
    float* kept = reinterpret_cast<float*>(p.scratch + 2 * plane) + size_t(tile.first_node) * width;  // of a large molecule, with residual
    const int end_row = large ? tile.num_nodes : 1;
    Neighbours<large> neighbours;
    Features h;
    OwnRows own_rows;
    if constexpr (!large) {
        neighbours.find(p.bonds, tile, lanes, buffer);
        if (SAVE) neighbours.keep(p.neighbours + size_t(tile.index) * neighbours.kept_bytes, buffer, lanes.again());
        if (!first_apart) load_atoms(source, neighbours, p, lanes, tile, 0, 0);
        lanes.sync();
        if (straight && !first_apart) each_row([&](int m, int half) { own_rows.row[m][half] = neighbours.own_row(buffer, tile, lanes, 0, m, half); });
    }
    if (tile.index < gridDim.x * lanes.count) wait_for_weights();  // the group's first tile
#pragma unroll 1
    for (int layer = 0; layer < p.num_layers; layer++) {
        const Layer& it = p.layers[layer];
        const bool is_last = layer == p.num_layers - 1;
        const Group group = lanes.again();
#pragma unroll 1
        for (int first_row = 0; first_row < end_row; first_row += tile_rows) {
            if constexpr (large) neighbours.find(p.bonds, tile, group, first_row);
            Features input;
            if constexpr (RESIDUAL) {
                input = h;
                if (large || layer == 0) each_row([&](int m, int half) {
                    const int row = first_row + group.row(m, half), atom = row < tile.num_nodes ? atom_at<large>(source, row) : 0;
#pragma unroll
                    for (int c = 0; c < spans; c++)
#pragma unroll
                        for (int e = 0; e < own; e++) {
                            const int column = span * c + own * group.t + e;
                            const bool there = row < tile.num_nodes && column < HIDDEN;
                            const float* from = layer > 0 ? kept + size_t(row) * width : p.x + size_t(tile.first_node + atom) * HIDDEN;
                            input.at(m, half, c, e) = there && (layer > 0 || p.num_features == HIDDEN) ? from[column] : 0.0f;
                        }
                });
            }
            h.zero();
            if ((large || first_apart) && layer == 0) {
                for (int base = 0; base < p.num_features; base += width) {
                    group.sync();
                    for (int first = 0; first < end_row; first += tile_rows) load_atoms(source, neighbours, p, group, tile, first, base);
                    group.sync();
                    if (first_apart) convolve<large, true>(h, neighbours, source, p, tile, group, weights, 0, base, own_rows);
                }
            }
            if (!first_apart || layer > 0) convolve<large, false>(h, neighbours, source, p, tile, group, weights, layer, 0, own_rows);
            const float sign = NORM == NORM_NONE ? -1.0f : 1.0f;  // negated, as relu takes it
#pragma unroll
            for (int c = 0; c < spans; c++) {
                float bias[own];
                if (!SHARED_WEIGHTS) read_columns(bias, it.bias, group, c);
#pragma unroll
                for (int e = 0; e < own; e++) {
                    if (SHARED_WEIGHTS) bias[e] = shared_biases(p, weights, layer)[first_column(c, group.t) + e];
                    if (NORM == NORM_NONE) bias[e] = 0.0f - bias[e];
                }
                each_row([&](int m, int half) {
#pragma unroll
                    for (int e = 0; e < own; e++) h.at(m, half, c, e) = h.at(m, half, c, e) * (sign * neighbours.scale[m][half]) + bias[e];
                });
            }
            if (activated(p, layer)) {
                if constexpr (NORM != NORM_NONE) normalise(h, p, group, tile, first_row, layer);
                activate<large>(h, p, group, tile, source, first_row, layer);
            } else {
                each_row([&](int m, int half) {
#pragma unroll
                    for (int j = 0; j < column_tiles; j++)
#pragma unroll
                        for (int e = 0; e < 2; e++) h.v[m][j][2 * half + e] *= sign;
                });
            }
            if (is_last) each_row([&](int m, int half) { neighbours.scale[m][half] = 1.0f; });
            if constexpr (RESIDUAL) each_row([&](int m, int half) {
#pragma unroll
                for (int j = 0; j < column_tiles; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) h.v[m][j][2 * half + e] += input.v[m][j][2 * half + e];
            });
            if (!large) group.sync();  // all neighbours are pulled
            const auto put = [&](int m, int half, int b, const Segment& s) {
                if (straight && b == 0) own_rows.row[m][half] = s;
                if (!large || first_row + group.row(m, half) < tile.num_nodes) store(target + group.own_offset(first_row, m, half, b), s);
            };
            if (clamps && activated(p, layer))
                each_segment([&](int m, int half, int b) { put(m, half, b, h.get<clamps>(m, half, b, neighbours.scale[m][half])); });
            else each_segment([&](int m, int half, int b) {
                const int row = first_row + group.row(m, half);
                put(m, half, b, h.get(m, half, b, neighbours.scale[m][half]));
                if (!((large && RESIDUAL) || (SAVE && POOL == POOL_MAX)) || row >= tile.num_nodes) return;
                const int atom = atom_at<large>(buffer, row);
#pragma unroll
                for (int e = 0; e < own; e++) {
                    const float x = h.at(m, half, b, e);
                    const size_t at = size_t(atom) * width + first_column(b, group.t) + e;
                    if (large && RESIDUAL) kept[at] = x;
                    if (SAVE && POOL == POOL_MAX && is_last) p.last[size_t(tile.first_node) * width + at] = x;
                }
            });
        }
        group.sync();
        unsigned char* next = source;
        source = target, target = next;
    }
    pool<large>(p, lanes, tile, source);
}

__device__ __noinline__ void forward_large(const Parameters& p, const Tile tile, Segment* weights) {
    forward<true>(p, Group(threadIdx.x), tile, nullptr, weights);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1) gcn_tile_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    wait_for_previous();  // no kernel comes before; lets the next one start while this one ends
    const Group group(threadIdx.x);
    unsigned char* buffer = one_address(shared + group.index * buffer_bytes);
    Segment* weights = reinterpret_cast<Segment*>(shared + group.count * buffer_bytes);
    const int end = __ldg(p.tile_ptr + p.num_tiles);
    clear_last_row(group, buffer);
    order_weights(p, group, weights);
    if (SAVE && blockIdx.x == 0 && threadIdx.x < 2) p.arrivals[threadIdx.x] = 0;
    pool_none(p, end);
    int index = blockIdx.x + gridDim.x * group.index;
    if (!is_filled(p, index, end)) wait_for_weights();  // the others wait while their first atoms are under way
    for (; is_filled(p, index, end); index += gridDim.x * group.count) {
        Tile tile = find_tile(p, index);
        if (breaks_promise(tile)) pool_nan(p, group, tile), tile = without_molecules(tile);
        if (LARGE_MOLECULES && tile.num_nodes > tile_rows)
            forward_large(p, tile, weights);
        else
            forward<false>(p, group, tile, buffer, weights);
        if (LOSS) score(p, index, 32 * group.warp + group.lane);
    }
    for (; LOSS && index < p.num_tiles; index += gridDim.x * group.count) score(p, index, 32 * group.warp + group.lane);
}
