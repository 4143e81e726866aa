// The rows that product_rows.cu multiplies, as sums along the bonds of rows that may first be taken through the end of a layer. A thread has
// four columns of an atom and pulls.
//
// Macros: AGGR, BONDS, GATHERED (whether the sums are written too); BEFORE, BEFORE_ADD, WRITTEN (of the end of a layer before).
#pragma once
#include "gather.cuh"

constexpr int gather_quads = Source::in_memory / 4;

__device__ __forceinline__ Quad quad_of(const float4& x) {
    return each([&](int e) { return at(x, e); });
}
__device__ __forceinline__ float4 float4_of(const Quad& x) { return make_float4(x.e[0], x.e[1], x.e[2], x.e[3]); }

__device__ __forceinline__ bool is_row(const Parameters& p, int row) { return static_cast<uint32>(row) < static_cast<uint32>(p.num_rows); }

// Returns the bonds of the atom that a thread has in the tile of rows from `first` on.
__device__ __forceinline__ Incoming bonds_of(const Parameters& p, int item, int first, int num_rows) {
    return Incoming(p, p.code, item < rows * gather_quads ? first + item / gather_quads : p.num_rows, num_rows);
}

// Writes the sums of the `count` atoms from `first` on into a tile. `bonds` are those of the thread's first atom there.
__device__ __forceinline__ void gather_rows(const Parameters& p, const Columns& columns, int thread, float* tile, int first, int count, int num_rows, Incoming bonds) {
    const bool counts = p.eps != nullptr;  // the atom itself counts
#pragma unroll 1
    for (int item = thread; item < count * gather_quads; item += threads) {
        const int row = item / gather_quads, column = 4 * (item % gather_quads), atom = first + row;
        const auto load_row = [&](int source) {
            const size_t at = size_t(source) * Source::in_memory + column;
            float4& x = four(const_cast<float*>(p.x) + at);
            if (BEFORE == BEFORE_NOTHING) return quad_of(x);
            return quad_of(through_end(p, columns, source, column, x, BEFORE_ADD ? four(const_cast<float*>(p.second) + at) : nothing()));
        };
        const auto load_message = [&](int source, int bond) {
            return Message{load_row(source), BONDS ? load(p.bond_rows + size_t(bond) * Source::in_memory + column) : Quad(), 1.0f};
        };
        Message loaded[together];
        bonds.load_bonds(0, load_message, loaded);
        const Quad h = counts || WRITTEN ? load_row(atom) : Quad();
        const Incoming next = bonds_of(p, item + threads, first, num_rows);  // loaded while this atom's rows are under way
        Quad sum = sum_of_messages(p, p.code, bonds, loaded, load_message, atom, 1.0f);
        if (counts) add(sum, 1.0f + *p.eps, h);
        const size_t at = size_t(atom) * Source::in_memory + column;
        if (WRITTEN) four(p.written + at) = float4_of(h);
        if (GATHERED) four(p.gathered + at) = float4_of(sum);
        four(tile + row * Source::stride + column) = float4_of(sum);
        bonds = next;
    }
}
