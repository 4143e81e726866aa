// Gradients of weights, biases and norms. A block adds up its tiles' gradients in order, then the grid adds up those of its blocks.
#pragma once
#include "gcn_tile.cuh"

constexpr int sums = NORM == NORM_NONE ? 1 : 3;  // column sums of a layer: bias; norm bias, norm weight
constexpr int block_floats = 128;                // 16 x 8 numbers of a weight gradient, four a lane
constexpr int column_floats = 4 * width;         // of one column sum: half of a lane's columns each, still to be added up over four lanes
// With six row tiles and float32 a warp takes all of dW for its own rows, in turns of its own; else it takes its part of dW for all rows.
// Where rows are split into parts, reading them twice costs more than more turns.
constexpr bool own_rows = six_row_tiles && parts == 2;
constexpr int column_warps = own_rows ? 1 : WARPS;
constexpr int in_tiles = column_warps == 1 && width >= 32 ? 2 : 1;  // of 16 ins, that a warp takes together

// Offsets of a block's sums: first 16 x 8 blocks [in tile][column tile] of each layer as the lanes hold them, then column sums.
struct Sums {
    int first_tiles, layers;

    __device__ explicit Sums(const Parameters& p) : first_tiles(in_width(p, 0) / 16), layers(p.num_layers) {}
    __device__ __forceinline__ int tiles(int layer) const { return layer == 0 ? first_tiles : width / 16; }
    __device__ __forceinline__ int tile(int layer, int q) const { return layer == 0 ? q : first_tiles + (layer - 1) * (width / 16) + q; }
    __device__ __forceinline__ int block(int layer, int q, int j) const { return (tile(layer, q) * column_tiles + j) * block_floats; }
    __device__ __forceinline__ int weights() const { return block(layers, 0, 0); }
    __device__ __forceinline__ int columns(int layer, int warp, int kind) const {
        return weights() + ((layer * column_warps + (own_rows ? 0 : warp)) * sums + kind) * column_floats;
    }
    __device__ __forceinline__ int size() const { return columns(layers, 0, 0); }
    // Returns where the block's last tile puts the block's sums in global memory. There the column sums of all warps and lanes are added
    // up.
    __device__ __forceinline__ float* handed_in(const Parameters& p) const { return p.partial + size_t(blockIdx.x) * reduced_size(); }
    __device__ __forceinline__ int reduced_size() const { return weights() + layers * sums * width; }
    // The indices of the turn counters: one for each layer and in tile, at least one for each warp. Where the first layer's input columns come
    // `width` at a time, some warps have none of the first ones. Such a warp takes its turn for column sums at a counter behind those of
    // all input columns.
    static constexpr bool in_pieces = packed && WIDE_INPUT;
    __device__ __forceinline__ int turn(int layer, int q) const {
        const int first = in_pieces ? first_tiles + WARPS : max(first_tiles, WARPS);
        return layer == 0 ? q : first + (layer - 1) * max(width / 16, WARPS) + q;
    }
    __device__ __forceinline__ int turns() const { return turn(layers, 0); }
};

struct Order {  // of a block's tiles
    int* turn;
    int tile;
    bool last;

    __device__ __forceinline__ Order of_warp(int warp) const {
        return own_rows ? Order{turn, tile * WARPS + warp, last && warp == WARPS - 1} : *this;
    }
    __device__ __forceinline__ void enter(int index) const {
        while (load_acquire_block(turn + index) != tile) spin();
        __syncwarp();
    }
    __device__ __forceinline__ void leave(int index, int lane) const {
        __syncwarp();
        if (lane == 0) store_release_block(turn + index, tile + 1);
    }
};

struct Columns {
    float v[sums][spans][own];
};
// Half of a lane's columns, plus those of the lane 16 on: lanes with g < 4 have the first half, the others the second.
struct HalfColumns {
    float v[sums][spans][own / 2];

    __device__ __forceinline__ void add(const Columns& columns, const Group& group) {
        const bool upper = group.g >= 4;
#pragma unroll
        for (int kind = 0; kind < sums; kind++)
#pragma unroll
            for (int c = 0; c < spans; c++)
#pragma unroll
                for (int i = 0; i < own / 2; i++) {
                    const float low = columns.v[kind][c][i], high = columns.v[kind][c][own / 2 + i];
                    v[kind][c][i] += (upper ? high : low) + shuffle_xor(upper ? low : high, 16);
                }
    }
};

// The saved pulled features of 16 atoms from `first` on, as left operand whose rows are the input columns of tile q. It is high and low
// parts in bf16; with TF32 it is one operand for every two of a lane's four nodes. Beyond the tile the last atom is read again, where the
// gradient is zero.
constexpr bool in_tf32 = PRECISION == PRECISION_TF32;
struct Ins {
    uint32 part[2][in_tiles][4];
};
constexpr int in_columns = 2 * in_tiles;  // adjacent, of a lane
struct InValues {
    float v[4][in_columns];  // nodes first + 2 t + (e & 1) + 8 (e >> 1)
};
__device__ __forceinline__ InValues read_ins(const unsigned char* rows, int bytes, const Group& group, int q, int first, int last) {
    InValues x;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int row = min(first + 2 * group.t + (e & 1) + 8 * (e >> 1), last);
        const float* at = reinterpret_cast<const float*>(rows + size_t(row) * bytes) + 16 * q + in_columns * group.g;
        if constexpr (in_columns == 4) {
            const float4 all = __ldg(reinterpret_cast<const float4*>(at));
            x.v[e][0] = all.x, x.v[e][1] = all.y, x.v[e][2] = all.z, x.v[e][3] = all.w;
        } else {
            const float2 two = __ldg(reinterpret_cast<const float2*>(at));
            x.v[e][0] = two.x, x.v[e][1] = two.y;
        }
    }
    return x;
}
__device__ __forceinline__ Ins split_ins(const InValues& x) {
    Ins a;
#pragma unroll
    for (int m = 0; m < in_tiles; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int column = 2 * m + (i & 1), e = i >> 1;
            if (in_tf32)
                a.part[0][m][i] = rounded_tf32(bits(x.v[e][column])), a.part[1][m][i] = rounded_tf32(bits(x.v[2 + e][column]));
            else
                split_pair(x.v[2 * e][column], x.v[2 * e + 1][column], a.part[0][m][i], a.part[1][m][i]);
        }
    return a;
}

// Where a lane reads gradients in bf16: pieces 0 or 1, and 2 or 3, of its row.
struct OutsAt {
    const unsigned char* pieces[2];

    __device__ __forceinline__ OutsAt(const unsigned char* buffer, const Group& group) {
        const int row = group.lane % 16;
#pragma unroll
        for (int i = 0; packed && i < 2; i++) pieces[i] = one_address(buffer + row * stride + 16 * swizzled(row, group.lane / 16 + 2 * i));
    }
};
// Gradients of 16 atoms' outputs, as right operands of `side` column tiles.
struct Outs {
    uint32 part[packed ? 1 : 2][side][2];
};
__device__ __forceinline__ Outs read_outs(const unsigned char* buffer, const OutsAt& at, const Group& group, int first_tile, int first) {
    Outs b;
    if constexpr (packed) {
#pragma unroll
        for (int j = 0; j < side; j += 2) {
            uint32 v[4];
            load_transposed(v, at.pieces[j / 2] + 16 * first_tile + first * stride);
            b.part[0][j][0] = v[0], b.part[0][j][1] = v[1], b.part[0][j + 1][0] = v[2], b.part[0][j + 1][1] = v[3];
        }
    } else {
        float x[4][side];  // side adjacent columns of the nodes as in InValues
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = 2 * group.t + (e & 1) + 8 * (e >> 1);
            const float* at = reinterpret_cast<const float*>(buffer + row * stride + first * stride);
            at += side == 4 ? 4 * swizzled(row, 2 * first_tile + group.g) : 8 * first_tile + 2 * group.g;
            if constexpr (side == 4) {
                const float4 all = *reinterpret_cast<const float4*>(at);
                x[e][0] = all.x, x[e][1] = all.y, x[e][2] = all.z, x[e][3] = all.w;
            } else {
                const float2 two = *reinterpret_cast<const float2*>(at);
                x[e][0] = two.x, x[e][1] = two.y;
            }
        }
#pragma unroll
        for (int j = 0; j < side; j++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                uint32 &first = b.part[0][j][k], &second = b.part[packed ? 0 : 1][j][k];
                if (in_tf32)
                    first = rounded_tf32(bits(x[k][j])), second = rounded_tf32(bits(x[2 + k][j]));
                else
                    split_pair(x[2 * k][j], x[2 * k + 1][j], first, second);
            }
    }
    return b;
}

// Returns how many rows a group stages at once: as many as its threads can, among the numbers that divide a tile.
__device__ constexpr int largest_part(int rows, int most) { return rows % most == 0 ? most : largest_part(rows, most - 1); }

// Stages the pulled features of a tile's rows from `first_row` on, columns base .. base + width, in shared memory; bf16 only.
__device__ __forceinline__ void stage_ins(unsigned char* staged, const Parameters& p, const Group& group, const Tile& tile, int layer, int first_row,
                                          int base) {
    constexpr int pieces = row_bytes / 16, rows_at_once = largest_part(tile_rows, 32 * WARPS / pieces);
    const int bytes = in_width(p, layer) * number_bytes;
    const int thread = 32 * group.warp + static_cast<int>(anew(group.lane)), first = thread / pieces, piece = thread % pieces;
    if (rows_at_once * pieces < 32 * WARPS && first >= rows_at_once) return;
    const bool column_there = !WIDE_INPUT || base * number_bytes + 16 * piece < bytes;
    const int rows_there = column_there ? tile.num_nodes - first_row - first : 0;
    const unsigned char* from = pulled_rows(p, tile, layer) + size_t(first_row + first) * bytes + base * number_bytes + 16 * piece;
    unsigned char* to = staged + first * stride;
#pragma unroll
    for (int row = 0; row < tile_rows; row += rows_at_once)  // nothing is read from where no row is
        copy16_last(to + row * stride + 16 * swizzled(first + row % 8, piece), from + row * bytes, row < rows_there);
}

// Adds a tile's column sums to the block's.
__device__ __forceinline__ void column_sums(const HalfColumns& columns, const Group& group, int layer, float* total, const Sums& at, bool more) {
    constexpr int count = sums * spans;  // all are read before the first is written, which might change what is read
    float before[count][own / 2] = {};
    float* to = total + at.columns(layer, group.warp, 0) + group.lane * (own / 2);
    const auto offset = [](int k, int i) { return k / spans * column_floats + k % spans * 32 * (own / 2) + i; };
#pragma unroll
    for (int k = 0; more && k < count; k++)
#pragma unroll
        for (int i = 0; i < own / 2; i++) before[k][i] = to[offset(k, i)];
#pragma unroll
    for (int k = 0; k < count; k++)
#pragma unroll
        for (int i = 0; i < own / 2; i++) to[offset(k, i)] = before[k][i] + columns.v[k / spans][k % spans][i];
}

// Adds a tile's H^T G, here (pulled features)^T (D^-1/2 dZ), to the block's sums, for the rows from `first_row` on, whose D^-1/2 dZ are in
// `buffer`. With the last rows it adds the column sums too. Warp w has the in tiles in_tiles (w + WARPS i), or all of them for its own
// rows. The warps of a large molecule meet between its strips, and so take their turns by the group's barrier.
template <bool large>
__device__ __forceinline__ void weight_gradient(const HalfColumns& columns, const Parameters& p, const Group& lanes, const Tile& tile,
                                                const unsigned char* buffer, const unsigned char* staged, int layer, int first_row, int base,
                                                float* total, const Sums& at, const Order& tile_order) {
    constexpr int most = column_tiles < 16 ? column_tiles : 16, blocks = own_rows ? ROW_TILES : tile_rows / 16;  // in registers
    const Group group = lanes.again();
    const Order order = tile_order.of_warp(group.warp);
    const int part = own_rows ? 0 : group.warp;
    const auto first_of = [&](int block) { return 16 * (own_rows ? group.row_tile(block) : block); };
    const OutsAt outs_at(buffer, group);
    const int bytes = in_width(p, layer) * number_bytes, last = min(tile.num_nodes - first_row, tile_rows) - 1;
    const unsigned char* pulled = pulled_rows(p, tile, layer) + size_t(first_row) * bytes;
    const int first_in = base / 16, end_in = packed ? min(at.tiles(layer), first_in + width / 16) : at.tiles(layer);
    constexpr bool by_barrier = own_rows && large;
    const bool is_first = first_row == 0, is_last = first_row + tile_rows >= tile.num_nodes;
    for (int q = first_in + in_tiles * part; q < (base == 0 ? max(end_in, column_warps) : end_in); q += in_tiles * column_warps) {
        const auto turn = [&] { return at.turn(layer, Sums::in_pieces && layer == 0 && q >= end_in ? at.first_tiles + part : q); };
        for (int begin = 0; begin < column_tiles; begin += most) {
            float d[in_tiles][most][4] = {};
            if (q < end_in && last >= 0) {
                InValues x[2];  // the next ones are loaded meanwhile
                const unsigned char* ins_at[in_tiles];
#pragma unroll
                for (int m = 0; packed && m < in_tiles; m++) {
                    const int row = group.lane % 8 + group.lane / 16 * 8, piece = 2 * (q + m - first_in) + group.lane / 8 % 2;
                    ins_at[m] = one_address(staged + row * stride + 16 * swizzled(row, piece));
                }
                if (!packed) x[0] = read_ins(pulled, bytes, group, q, first_of(0), last), x[1] = read_ins(pulled, bytes, group, q, first_of(1), last);
#pragma unroll(large || spans > 2 ? 2 : blocks)
                for (int block = 0; block < blocks; block++) {
                    Ins a;
                    if constexpr (packed) {
#pragma unroll
                        for (int m = 0; m < in_tiles; m++) load_transposed(a.part[0][m], ins_at[m] + 16 * block * stride);
                    } else {
                        a = split_ins(x[block % 2]);
                        if (block + 2 < blocks) x[block % 2] = read_ins(pulled, bytes, group, q, first_of(block + 2), last);
                    }
#pragma unroll
                    for (int i = 0; i < most; i += side) {
                        if (column_tiles % most != 0 && begin + i >= column_tiles) break;
                        const Outs b = read_outs(buffer, outs_at, group, begin + i, first_of(block));
#pragma unroll
                        for (int pass = packed ? 2 : in_tf32 ? 1 : 0; pass < 3; pass++)
#pragma unroll
                            for (int j = 0; j < side; j++)
#pragma unroll
                                for (int m = 0; m < in_tiles; m++)
                                    if (in_tf32)
                                        mma_tf32(d[m][i + j], a.part[pass == 1][m], b.part[pass == 1][j]);
                                    else
                                        mma_bf16(d[m][i + j], a.part[pass == 0][m], b.part[pass == 1][j]);
                    }
                }
            }
            if (begin == 0 && is_first && !(by_barrier && group.warp > 0)) order.enter(turn());
            if (by_barrier && group.warp > 0) group.sync();
            const bool more = order.tile > 0 || !is_first;
            const int first_block = at.block(layer, q, begin) + 4 * group.lane;
            const float* from = total + first_block;
            float* to = (order.last && is_last ? at.handed_in(p) : total) + first_block;
            constexpr int count = in_tiles * most;
            const int there = q >= end_in ? 0 : column_tiles % most == 0 ? count : in_tiles * (column_tiles - begin);
            const auto offset = [](int k) { return (k % in_tiles * column_tiles + k / in_tiles) * block_floats; };
            float4 before[count] = {};  // all are read before the first is written, which might change what is read
#pragma unroll
            for (int k = 0; more && k < count; k++)
                if (k < there) before[k] = *reinterpret_cast<const float4*>(from + offset(k));
#pragma unroll
            for (int k = 0; k < count; k++) {
                const float(&x)[4] = d[k % in_tiles][k / in_tiles];
                const float4 b = before[k];
                if (k < there) *reinterpret_cast<float4*>(to + offset(k)) = make_float4(b.x + x[0], b.y + x[1], b.z + x[2], b.w + x[3]);
            }
        }
        if (is_last && q == in_tiles * part) column_sums(columns, group, layer, total, at, order.tile > 0);
        if (is_last && !order.last) order.leave(turn(), group.lane);
        if (by_barrier && group.warp == 0) group.sync();
    }
}
