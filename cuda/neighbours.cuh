// Neighbours of a tile's atoms.
//
// A tile's rows are its atoms in the order of their degrees. Rows that lie together then have about equally many neighbours, and a warp
// asks for no more than those. A large molecule's rows are its atoms in their own order.
#pragma once
#include "table.cuh"

constexpr int pair = ROW_TILES < 2 ? 1 : 2;  // row tiles whose neighbours are pulled together; the last may be one
constexpr bool apart = ROW_TILES == 3;       // each row tile asks for its own number of neighbours

// The sums of a lane's rows in two row tiles, the first of them `row`. The bonds from number `begin` on are still to be added.
struct More {
    Segment total[2 * pair];
    int begin, row, b, t;
};
template <bool large>
__device__ __noinline__ void add_more(More& it, const unsigned char* buffer, const Bonds& bonds, const Tile& tile) {
#pragma unroll 1
    for (int i = 0; i < 2 * pair; i++) {
        const int row = it.row + i / 2 * Group::to_second(it.row) + i % 2 * 8, atom = row < tile.num_nodes ? atom_at<large>(buffer, row) : 0;
        const int first = row < tile.num_nodes ? begin_of(bonds, tile, atom) : 0, end = row < tile.num_nodes ? end_of(bonds, tile, atom) : 0;
        Segment sum = it.total[i];
#pragma unroll 1
        for (int bond = first + it.begin; bond < end; bond++) {
            const int neighbour = source_of(bonds, tile, bond);
            if (SELF_LOOPS && neighbour == atom) continue;
            const size_t begin = begin_of<large>(buffer, large ? neighbour : inside(neighbour));
            add(sum, load(buffer + at_span(begin ^ segment_offset(0, it.t), it.b)));
        }
        it.total[i] = sum;
    }
}

// Returns D^-1/2 of a node with `degree` neighbours, without the self-loops among the bonds from `bond` to `end`.
__device__ __noinline__ float scale_of(const int* col, int node, int degree, int bond, int end) {
#pragma unroll 1
    for (; SELF_LOOPS && bond < end; bond++) degree -= __ldg(col + bond) == node;
    return degree > 0 ? 1.0f / sqrtf(static_cast<float>(degree)) : 0.0f;
}

// D^-1/2 of a warp's rows, and the number of their neighbours.
template <bool large>
struct Neighbours {
    float scale[ROW_TILES][2];
    uint32 held[scarce ? 1 : 2 * ROW_TILES][2];  // the table's `near` of a lane's rows, unless registers are scarce
    static constexpr int each = apart ? 1 : pair, numbers = (ROW_TILES + each - 1) / each;
    int near[numbers];                           // most bonds of a row of `each` row tiles, at most four
    int beyond;                                  // most bonds of a row, without four
    int first_row;
    uint32 copies[ROW_TILES];                    // the table's of both halves, with MERGED_LEAVES

    __device__ __forceinline__ void hold_copies(const Table& table, const Group& group) {
#pragma unroll
        for (int m = 0; MERGED_LEAVES && m < ROW_TILES; m++) copies[m] = table.copies[group.row(m, 0)] | table.copies[group.row(m, 1)] << 16;
    }
    // Returns for how many atoms a row stands.
    __device__ __forceinline__ float atoms_of(const unsigned char* buffer, const Bonds& bonds, const Tile& tile, const Group& group, int m,
                                              int half) const {
        if (MERGED_LEAVES && !large) return number(half == 0 ? copies[m] << 16 : copies[m] & 0xffff0000u);
        return copies_at<large>(buffer, bonds, tile, first_row + group.row(m, half));
    }

    // Finds the neighbours of a large molecule's rows, from `first_row_` on.
    __device__ __forceinline__ void find(const Bonds& bonds, const Tile& tile, const Group& group, int first_row_) {
        first_row = first_row_;
        int most = 0;
        each_row([&](int m, int half) {
            const int row = first_row + group.row(m, half);
            const bool there = row < tile.num_nodes;
            const int begin = there ? begin_of(bonds, tile, row) : 0, end = there ? end_of(bonds, tile, row) : 0;
            most = max(most, end - begin);
            scale[m][half] = scale_of(bonds.col, tile.first_node + row, end - begin + (SELF_LOOPS && there), begin, end);
        });
        beyond = largest(most) - 4;
    }

    // Orders a tile's atoms (stable, most bonds first) and writes its table.
    __device__ __forceinline__ void find(const Bonds& bonds, const Tile& tile, const Group& group, unsigned char* buffer) {
        const Table table(buffer);
        constexpr int blocks = (tile_rows + 31) / 32;
        int degree[blocks], row[blocks], most = 0, count = 0;
#pragma unroll
        for (int k = 0; k < blocks; k++) {
            const int atom = 32 * k + group.lane;
            degree[k] = atom < tile.num_nodes ? end_of(bonds, tile, atom) - begin_of(bonds, tile, atom) : -1;
            most = max(most, degree[k]);
        }
        first_row = 0;
        beyond = largest(most) - 4;
#pragma unroll
        for (int& slots : near) slots = 0;
#pragma unroll
        for (int slots = 4; slots >= 0; slots--) {
#pragma unroll
            for (int k = 0; k < blocks; k++) {
                const bool here = min(degree[k], 4) == slots;
                const uint32 all = ballot(here);
                if (here) row[k] = count + count_bits(all & ((1u << group.lane) - 1));
                count += count_bits(all);
            }
#pragma unroll
            for (int i = 0; i < numbers; i++) near[i] += slots > 0 && count > group.row(each * i, 0) - group.g;
        }
#pragma unroll
        for (int k = 0; k < blocks; k++) {
            const int atom = 32 * k + group.lane;
            if (group.warp > 0 || atom >= tile.num_nodes) continue;
            table.offset[atom] = static_cast<unsigned short>(segment_offset(row[k], 0) / offset_unit);
            table.atom[row[k]] = static_cast<unsigned char>(atom);
        }
        group.sync();
        float* scales = reinterpret_cast<float*>(buffer);  // on their way to other lanes
        constexpr int shares = (blocks + WARPS - 1) / WARPS;
        int begin[shares], end[shares], neighbour[shares][4];
#pragma unroll
        for (int i = 0; i < shares; i++) {
            const int atom = 32 * (group.warp + WARPS * i) + group.lane;
            const bool there = atom < tile.num_nodes;
            begin[i] = there ? begin_of(bonds, tile, atom) : 0, end[i] = there ? end_of(bonds, tile, atom) : 0;
#pragma unroll
            for (int slot = 0; slot < 4; slot++) neighbour[i][slot] = begin[i] + slot < end[i] ? source_of(bonds, tile, begin[i] + slot) : -1;
        }
#pragma unroll
        for (int i = 0; i < shares; i++) {
            const int atom = 32 * (group.warp + WARPS * i) + group.lane;
            const bool there = atom < tile.num_nodes;
            if (WARPS * shares * 32 > tile_rows && atom >= tile_rows) break;
            int degree = end[i] - begin[i] + (SELF_LOOPS && there);
            uint32 offset[4];
#pragma unroll
            for (int slot = 0; slot < 4; slot++) {
                const bool self = SELF_LOOPS && neighbour[i][slot] == atom;
                degree -= self;
                const uint32 missing = static_cast<uint32>(segment_offset(tile_rows, 0)) / offset_unit;
                offset[slot] = self || neighbour[i][slot] < 0 ? missing : table.offset[inside(neighbour[i][slot])];
            }
            const int at = there ? row_of<large>(buffer, atom) : atom;
            table.near[2 * at] = offset[0] | offset[1] << 16;
            table.near[2 * at + 1] = offset[2] | offset[3] << 16;
            scales[at] = scale_of(bonds.col, tile.first_node + atom, degree, begin[i] + 4, end[i]);
            if (MERGED_LEAVES) table.copies[at] = static_cast<unsigned short>(bits(there ? copies_of(bonds, tile, atom) : 0.0f) >> 16);
        }
        group.sync();
        each_row([&](int m, int half) {
            scale[m][half] = scales[group.row(m, half)];
            for (int i = 0; !scarce && i < 2; i++) held[2 * m + half][i] = table.near[2 * group.row(m, half) + i];
        });
        hold_copies(table, group);
        group.sync();
    }

    // What forward saves for backward of what `find` found of a tile: the table, the rows' scales, `beyond`, and `near` by row tile.
    static constexpr int kept_bytes = table_bytes + 4 * tile_rows + 64;

    __device__ __forceinline__ void keep(unsigned char* kept, const unsigned char* buffer, const Group& group) const {
        uint32* words = reinterpret_cast<uint32*>(kept);
        for (int i = 32 * group.warp + group.lane; i < table_bytes / 4; i += 32 * WARPS) words[i] = reinterpret_cast<const uint32*>(buffer + rows_bytes)[i];
        float* scales = reinterpret_cast<float*>(kept + table_bytes);
        each_row([&](int m, int half) {
            if (group.t == 0) scales[group.row(m, half)] = scale[m][half];
        });
        int* counts = reinterpret_cast<int*>(kept + table_bytes + 4 * tile_rows);
        if (group.lane > 0) return;
        if (group.warp == 0) counts[0] = beyond;
#pragma unroll
        for (int i = 0; i < numbers; i++) counts[1 + group.row_tile(each * i)] = near[i];
    }
    __device__ __forceinline__ void recall(const unsigned char* kept, const Tile& tile, unsigned char* buffer, const Group& group) {
        constexpr int words = table_bytes / 4;
        const bool there = tile.num_nodes > 0;  // forward leaves empty tiles out
        const int* counts = reinterpret_cast<const int*>(kept + table_bytes + 4 * tile_rows);
        first_row = 0, beyond = there ? __ldg(counts) : 0;
#pragma unroll
        for (int i = 0; i < numbers; i++) near[i] = there ? __ldg(counts + 1 + group.row_tile(each * i)) : 0;
        each_row([&](int m, int half) {
            scale[m][half] = there ? __ldg(reinterpret_cast<const float*>(kept + table_bytes) + group.row(m, half)) : 0.0f;
        });
#pragma unroll
        for (int first = 0; first < words; first += 32 * WARPS) {
            const int i = first + 32 * group.warp + group.lane;
            if (i < words) reinterpret_cast<uint32*>(buffer + rows_bytes)[i] = there ? __ldg(reinterpret_cast<const uint32*>(kept) + i) : 0;
        }
        group.sync();
        each_row([&](int m, int half) {
            for (int i = 0; !scarce && i < 2; i++) held[2 * m + half][i] = Table(buffer).near[2 * group.row(m, half) + i];
        });
        hold_copies(Table(buffer), group);
    }

    // Returns the lane's segment of span b of I times the buffer.
    __device__ __forceinline__ Segment own_row(const unsigned char* buffer, const Tile& tile, const Group& group, int b, int m, int half) const {
        const bool there = SELF_LOOPS && (!large || first_row + group.row(m, half) < tile.num_nodes);
        return there ? load(buffer + group.own_offset(first_row, m, half, b)) : zeros();
    }
    // total += the lane's segments of span b of A times the buffer, for the rows of `pair` row tiles from m0 on.
    __device__ __forceinline__ void pull(Segment (&total)[pair][2], const unsigned char* buffer, const Bonds& bonds, const Tile& tile,
                                         const Group& group, int b, int m0) const {
        // Either order is correct; each plan takes the one that compiles to the quicker code. Backward takes 165 instead of 175 us with six
        // row tiles, 215 instead of 229 in one warp.
        if (six_row_tiles) add_beyond(total, buffer, bonds, tile, group, b, m0);
        if (!large) add_nearest(total, buffer, group, b, m0);
        if (!six_row_tiles) add_beyond(total, buffer, bonds, tile, group, b, m0);
    }

private:
    // Adds the neighbours beyond the fourth; of a large molecule it adds all.
    __device__ __forceinline__ void add_beyond(Segment (&total)[pair][2], const unsigned char* buffer, const Bonds& bonds, const Tile& tile,
                                               const Group& group, int b, int m0) const {
        if (large || (beyond > 0 && near[m0 / each] == 4)) {
            More more = {{}, large ? 0 : 4, first_row + group.row(m0, 0), b, group.t};
#pragma unroll
            for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++) more.total[i] = total[i / 2][i % 2];
            add_more<large>(more, buffer, bonds, tile);
#pragma unroll
            for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++) total[i / 2][i % 2] = more.total[i];
        }
    }

    // Adds the first four neighbours of each row.
    __device__ __forceinline__ void add_nearest(Segment (&total)[pair][2], const unsigned char* buffer, const Group& group, int b, int m0) const {
        const uint32 lane = (static_cast<uint32>(segment_offset(0, group.t)) ^ (b & 1 ? flip : 0)) / offset_unit * 0x10001;
        const int most = near[m0 / each];
        if (apart && m0 == 0) {
            const int second = near[numbers - 2];
            add_near<0, 2, 0, 1>(total, buffer, group, b, m0, lane);
            if (second > 2) {
                add_near<2, 4, 1, 3>(total, buffer, group, b, m0, lane);
                if (second > 3) add_near<0, 0, 3, 4>(total, buffer, group, b, m0, lane);
            } else {
                if (second > 1) add_near<0, 0, 1, 2>(total, buffer, group, b, m0, lane);
                if (most > 2) add_near<2, 4, 0, 0>(total, buffer, group, b, m0, lane);
            }
            return;
        }
        if (m0 == 0) {
            add_near<0, 2>(total, buffer, group, b, m0, lane);
        } else {  // rows that are often hydrogens
            add_near<0, 1>(total, buffer, group, b, m0, lane);
            if (most > 1) add_near<1, 2>(total, buffer, group, b, m0, lane);
        }
        if (ROW_TILES == 1 || most > 2) add_near<2, 4>(total, buffer, group, b, m0, lane);
    }

    // Adds neighbours begin .. end - 1 of the rows of both row tiles, or `second_begin` .. `second_end` - 1 of the second's.
    template <int begin, int end, int second_begin = begin, int second_end = end>
    __device__ __forceinline__ void add_near(Segment (&total)[pair][2], const unsigned char* buffer, const Group& group, int b, int m0,
                                             uint32 lane) const {
        const unsigned char* rows = buffer + span_bytes(b);
#pragma unroll
        for (int word = 0; word < 2; word++) {
            uint32 offsets[2 * pair];
#pragma unroll
            for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++)
                if (max(2 * word, i < 2 ? begin : second_begin) < min(2 * word + 2, i < 2 ? end : second_end))
                    offsets[i] = lane ^ (!scarce ? held[2 * m0 + i][word] : Table(buffer).near[2 * group.row(m0 + i / 2, i % 2) + word]);
#pragma unroll
            for (int slot = 2 * word; slot < 2 * word + 2; slot++)
#pragma unroll
                for (int i = 0; i < 2 * pair && m0 + i / 2 < ROW_TILES; i++)
                    if (slot >= (i < 2 ? begin : second_begin) && slot < (i < 2 ? end : second_end))
                        add(total[i / 2][i % 2], load(rows + (slot % 2 == 0 ? offsets[i] & 0xffffu : offsets[i] >> 16) * offset_unit));
        }
    }
};
