// The sums along the bonds of a tile's atoms, and their gradients.
//
// Macros: AGGR, BONDS (what a message is: h, or relu(h + e) with e by the bond's code or by the bond), BACKWARD.
#pragma once
#include "tile_rows.cuh"

#define AGGR_SUM 0
#define AGGR_MEAN 1
#define AGGR_GCN 3        // D^-1/2 A D^-1/2
#define AGGR_GCN_LOOPS 4  // D^-1/2 (A + I) D^-1/2, without the bonds' own self-loops
#define BONDS_NONE 0
#define BONDS_CODED 1
#define BONDS_DENSE 2

constexpr bool gcn = AGGR == AGGR_GCN || AGGR == AGGR_GCN_LOOPS;
constexpr int most_listed = 4 * tile_rows;  // bonds of a tile that are listed in shared memory: all bonds of most tiles

// A bond at one of a tile's atoms: the atom's row and the source's row in the tile, and the row of bonds that it has, or in a backward pass
// its reverse.
struct Bond {
    int row, source, of_bonds;
};

// The bonds at a lane's two atoms.
struct TileBonds {
    int first, begin[2], end[2];  // `first`: of the tile
    float weight[2];              // of a message: D^-1/2 or 1 / degree
    const uint32* list;           // [most_listed]: row, source and code of each bond, 8 bits each

    __device__ __forceinline__ TileBonds(const Parameters& p, const Tile& tile, uint32* to) : first(__ldg(p.rowptr + tile.first)), list(to) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bool there = tile.has(half);
            begin[half] = there ? __ldg(p.rowptr + tile.atom(half)) : 0, end[half] = there ? __ldg(p.rowptr + tile.atom(half) + 1) : 0;
            int others = end[half] - begin[half] + (AGGR == AGGR_GCN_LOOPS && there);
            for (int bond = begin[half]; bond < end[half]; bond++) {
                const Bond it = read(p, tile, bond, tile.row(half));
                others -= AGGR == AGGR_GCN_LOOPS && it.source == it.row;
                const uint32 code = BONDS == BONDS_CODED ? it.of_bonds : 0;
                if (tile.t == 0 && bond - first < most_listed) to[bond - first] = it.row | it.source << 8 | code << 16;
            }
            weight[half] = others > 0 ? gcn ? 1.0f / sqrtf(static_cast<float>(others)) : 1.0f / static_cast<float>(others) : 0.0f;
        }
    }
    // Reads a bond from the batch. A source outside of the tile is replaced by one inside.
    static __device__ __forceinline__ Bond read(const Parameters& p, const Tile& tile, int bond, int row) {
        const int source = static_cast<int>(min(static_cast<uint32>(__ldg(p.col + bond) - tile.first), static_cast<uint32>(tile_rows - 1)));
        const int* rows = BACKWARD ? p.paired : p.code;
        return {row, source, BONDS == BONDS_NONE ? 0 : rows != nullptr ? __ldg(rows + bond) : bond};
    }
    // Returns a bond at an atom of the tile.
    __device__ __forceinline__ Bond at(const Parameters& p, const Tile& tile, int bond, int row) const {
        if (bond - first >= most_listed) return read(p, tile, bond, row);
        const uint32 it = list[bond - first];
        Bond listed = {static_cast<int>(it & 255), static_cast<int>(it >> 8 & 255), static_cast<int>(it >> 16)};
        if (BONDS == BONDS_DENSE) listed.of_bonds = read(p, tile, bond, row).of_bonds;
        return listed;
    }
    // Calls body(bonds, there) for the bonds of both atoms in turn, one of each at a time. Where an atom has no more, `there` is false and
    // the bond leads from the atom to itself.
    template <class Body>
    __device__ __forceinline__ void each(const Parameters& p, const Tile& tile, Body body) const {
        const int most = max(end[0] - begin[0], end[1] - begin[1]);
#pragma unroll 1  // instructions have to fit into their cache
        for (int k = 0; k < most; k++) {
            Bond bonds[2];
            bool there[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = tile.row(half);
                there[half] = begin[half] + k < end[half];
                bonds[half] = there[half] ? at(p, tile, begin[half] + k, row) : Bond{row, row, 0};
                if (AGGR == AGGR_GCN_LOOPS && bonds[half].source == row) there[half] = false;
            }
            body(bonds, there);
        }
    }
};

// Returns the sum of four columns of the atom's row and of a bond's row: relu's input.
__device__ __forceinline__ float4 message(const float4& h, const float* row, int column, int step) {
    const float4 e = column < step ? load4(row + column) : nothing();
    return make_float4(h.x + e.x, h.y + e.y, h.z + e.z, h.w + e.w);
}

// x = (1 + eps) h + sum of w phi(h_j, e) + b, for the rows h in a slot. `weights` has the D^-1/2 or 1 / degree of each of the tile's rows.
__device__ __forceinline__ void gather(const Parameters& p, const Tile& tile, Features& x, const TileBonds& bonds, const Instruction& it,
                                       const float* slot, const float* weights) {
    const int step = padded(it.width);
    x.zero();
    bonds.each(p, tile, [&](const Bond(&of)[2], const bool(&there)[2]) {
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++)
            factor[half] = gcn ? bonds.weight[half] * weights[of[half].source] : AGGR == AGGR_MEAN ? bonds.weight[half] : 1.0f;
        x.each(tile, it.width, [&](int, int half, float(&v)[4], int column) {
            float4 h = row_at(slot, of[half].source, column);
            if (BONDS != BONDS_NONE) h = message(h, it.more + size_t(of[half].of_bonds) * step, column, step);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float phi = BONDS != BONDS_NONE && at(h, e) < 0.0f ? 0.0f : at(h, e);
                if (there[half]) v[e] = fmaf(factor[half], phi, v[e]);
            }
        });
    });
    const bool counts = AGGR == AGGR_GCN_LOOPS || it.weight != nullptr;  // the atom itself counts
    const float own = counts && AGGR != AGGR_GCN_LOOPS ? 1.0f + __ldg(it.weight) : 1.0f;
    x.each(tile, it.width, [&](int, int half, float(&v)[4], int column) {
        const float factor = AGGR == AGGR_GCN_LOOPS ? bonds.weight[half] * bonds.weight[half] : own;
        const float4 h = counts ? row_at(slot, tile.row(half), column) : nothing();
        const float4 bias = it.bias != nullptr ? load_vector(it.bias, column, it.width) : nothing();
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (counts) v[e] = fmaf(factor, at(h, e), v[e]);
            v[e] += at(bias, e);
        }
    });
}

#if BACKWARD
// Loads four columns of an atom's row in global memory.
__device__ __forceinline__ float4 value_at(const Tile& tile, const Instruction& it, int row, int column) {
    const int step = padded(it.width);
    return column < step ? load4(it.rows + size_t(tile.first + row) * step + column) : nothing();
}

// x = (1 + eps) g + sum of w g_i [h + e > 0], for gradients g in a slot and rows h in global memory: the gradient of h. A term is also
// that of its bond's row, which is written where each bond has a row.
__device__ __forceinline__ void gather_gradient(const Parameters& p, const Tile& tile, Features& x, const TileBonds& bonds, const Instruction& it,
                                                const float* slot, const float* weights) {
    const int step = padded(it.width);
    x.zero();
    Features h;
    if (BONDS != BONDS_NONE) h.load(tile, it.rows, it.width);
    bonds.each(p, tile, [&](const Bond(&of)[2], const bool(&there)[2]) {
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++)
            factor[half] = gcn ? bonds.weight[half] * weights[of[half].source] : AGGR == AGGR_MEAN ? weights[of[half].source] : 1.0f;
        x.each(tile, it.width, [&](int c, int half, float(&v)[4], int column) {
            float4 g = row_at(slot, of[half].source, column);
            const size_t row = size_t(of[half].of_bonds) * step;
            if (BONDS != BONDS_NONE) {
                const float4 input = message(quad(h.v[c][half]), it.more + row, column, step);
#pragma unroll
                for (int e = 0; e < 4; e++) at(g, e) = at(input, e) > 0.0f ? at(g, e) : 0.0f;
            }
            if (BONDS == BONDS_DENSE && there[half] && it.out != nullptr && column < step) {
                float4 sum = g;
                if (it.extra != nullptr) add(sum, *reinterpret_cast<const float4*>(it.extra + row + column));  // perhaps of this launch
                four(it.out + row + column) = sum;
            }
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (there[half]) v[e] = fmaf(factor[half], at(g, e), v[e]);
        });
    });
    const bool counts = AGGR == AGGR_GCN_LOOPS || it.weight != nullptr;
    const float own = counts && AGGR != AGGR_GCN_LOOPS ? 1.0f + __ldg(it.weight) : 1.0f;
    x.each(tile, counts ? it.width : 0, [&](int, int half, float(&v)[4], int column) {
        const float factor = AGGR == AGGR_GCN_LOOPS ? bonds.weight[half] * bonds.weight[half] : own;
        const float4 g = row_at(slot, tile.row(half), column);
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = fmaf(factor, at(g, e), v[e]);
    });
}

// Adds the gradient of the table of distinct bonds to the warp's sums. Each half of a warp takes every other bond at the warp's atoms, with
// four columns a lane, and sums them in `table` [2, codes, stride] in shared memory.
__device__ __forceinline__ void table_gradient(const Parameters& p, const Tile& tile, const TileBonds& bonds, const Instruction& it, const float* slot,
                                               float* table, float* sums) {
    const int step = padded(it.width), lane = tile.lane % 16, side = tile.lane / 16, size = p.num_codes * stride;
    const int first_row = min(16 * tile.warp, tile.count), end_row = min(first_row + 16, tile.count);
    const int begin = __ldg(p.rowptr + tile.first + first_row), end = __ldg(p.rowptr + tile.first + end_row);
    for (int i = 4 * tile.lane; i < 2 * size; i += 128) four(table + i) = nothing();
    __syncwarp();
    int row = first_row, next = first_row < end_row ? __ldg(p.rowptr + tile.first + row + 1) : 0;
    constexpr int at_once = 4;  // bonds whose rows are under way
#pragma unroll 1
    for (int first = begin + side; first < end; first += 2 * at_once) {
        Bond listed[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const int bond = min(first + 2 * i, end - 1);
            if (bond - bonds.first >= most_listed)  // the list does not say whose bond it is
                while (bond >= next) next = __ldg(p.rowptr + tile.first + ++row + 1);
            listed[i] = bonds.at(p, tile, bond, row);
        }
        for (int column = 4 * lane; column < step; column += 64) {
            float4 term[at_once];
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                const float4 g = row_at(slot, listed[i].source, column), h = value_at(tile, it, listed[i].row, column);
                const float4 input = message(h, it.more + size_t(listed[i].of_bonds) * step, column, step);
#pragma unroll
                for (int e = 0; e < 4; e++) at(term[i], e) = at(input, e) > 0.0f ? at(g, e) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < at_once; i++)
                if (first + 2 * i < end) add(four(table + side * size + listed[i].of_bonds * stride + column), term[i]);
        }
    }
    __syncwarp();
    for (int i = tile.lane; i < p.num_codes * step; i += 32) {
        const int from = i / step * stride + i % step;
        atomicAdd(sums + i, table[from] + table[size + from]);  // nobody else adds to this number
    }
    __syncwarp();
}

// Adds the gradient of eps to the warp's sum.
__device__ __forceinline__ void eps_gradient(const Tile& tile, const Instruction& it, const float* slot, float* sums) {
    float sum = 0.0f;
    for (int half = 0; half < 2; half++)
        for (int column = 4 * tile.t; tile.has(half) && column < it.width; column += 16) {
            const float4 g = row_at(slot, tile.row(half), column), h = value_at(tile, it, tile.row(half), column);
            sum += fmaf(g.x, h.x, g.y * h.y) + fmaf(g.z, h.z, g.w * h.w);
        }
    for (int lanes = 1; lanes < 32; lanes <<= 1) sum += shuffle_xor(sum, lanes);
    if (tile.lane == 0) atomicAdd(sums, sum);
}
#endif
