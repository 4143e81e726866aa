// The bonds that point at an atom, and the sum of what they bring. A kernel's Parameters have `rowptr` and `col`, and is_row(p, atom).
//
// Macros: AGGR, BONDS (whether a message is relu(h + e), not h).
#pragma once
#include "real.cuh"

#define AGGR_SUM 0
#define AGGR_MEAN 1
#define AGGR_MAX 2
#define AGGR_GCN 3        // D^-1/2 A D^-1/2
#define AGGR_GCN_LOOPS 4  // D^-1/2 (A + I) D^-1/2, without the bonds' own self-loops

constexpr bool gcn = AGGR == AGGR_GCN || AGGR == AGGR_GCN_LOOPS;
constexpr int near = 4;      // bonds that are read ahead: all bonds of most atoms
constexpr int together = 2;  // bonds whose rows are loaded together

// Where an atom's bonds lead. This is read before the previous kernel has written its rows. `rows` has the rows of bonds, or is null where
// bond i has row i.
struct Incoming {
    int begin = 0, end = 0, source[near], row[near];

    __device__ __forceinline__ Incoming() {}
    template <class P>
    __device__ __forceinline__ Incoming(const P& p, const int* rows, int atom, int num_atoms) {
        if (!is_row(p, atom)) return;  // does not wait for num_atoms: all rows have a number of bonds, those of padding 0
        begin = __ldg(p.rowptr + atom), end = __ldg(p.rowptr + atom + 1);
        if (atom >= num_atoms) end = begin;
#pragma unroll
        for (int k = 0; k < near; k++)
            if (begin + k < end) {
                source[k] = __ldg(p.col + begin + k);
                if (BONDS) row[k] = row_of(rows, begin + k);
            }
    }
    static __device__ __forceinline__ int row_of(const int* rows, int bond) { return rows == nullptr ? bond : __ldg(rows + bond); }

    // Loads what load(source, bond's row) returns for the bonds from number `first` on.
    template <class Load, class Loaded>
    __device__ __forceinline__ void load_bonds(int first, Load load, Loaded (&loaded)[together]) const {
#pragma unroll
        for (int k = 0; k < together; k++)
            if (begin + first + k < end) loaded[k] = load(source[first + k], BONDS ? row[first + k] : 0);
    }
    // Calls use(loaded, source, bond's row) for all bonds in order; the first are loaded already.
    template <class P, class Load, class Loaded, class Use>
    __device__ __forceinline__ void each_bond(const P& p, const int* rows, Loaded (&loaded)[together], Load load, Use use) const {
#pragma unroll
        for (int first = 0; first < near; first += together) {
            if (first > 0) load_bonds(first, load, loaded);
#pragma unroll
            for (int k = 0; k < together; k++)
                if (begin + first + k < end) use(loaded[k], source[first + k], BONDS ? row[first + k] : 0);
        }
        for (int bond = begin + near; bond < end; bond++) {
            const int from = __ldg(p.col + bond), at = BONDS ? row_of(rows, bond) : 0;
            use(load(from, at), from, at);
        }
    }
};

// Four columns of a message.
struct Message {
    Quad h, bond;
    real scale;
};
// Returns aggr(w relu(h_j + e)) for four columns of an atom. The first messages are loaded already, by load(source, bond's row).
template <class P, class Load>
__device__ __forceinline__ Quad
sum_of_messages(const P& p, const int* rows, const Incoming& bonds, Message (&loaded)[together], Load load, int atom, real scale) {
    Quad sum;
    bool none = true;
    bonds.each_bond(p, rows, loaded, load, [&](const Message& it, int source, int) {
        if (AGGR == AGGR_GCN_LOOPS && source == atom) return;
        Quad x = it.h;
        if (BONDS) x = each([&](int e) { return x.e[e] + it.bond.e[e] < real(0) ? real(0) : x.e[e] + it.bond.e[e]; });
        if (AGGR == AGGR_MAX)
            sum = each([&](int e) { return none || x.e[e] > sum.e[e] || x.e[e] != x.e[e] ? x.e[e] : sum.e[e]; });
        else
            add(sum, scale * it.scale, x);
        none = false;
    });
    if (AGGR == AGGR_MEAN && !none) sum = each([&](int e) { return sum.e[e] / static_cast<real>(bonds.end - bonds.begin); });
    return sum;
}
