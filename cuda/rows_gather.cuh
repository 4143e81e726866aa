// The bonds that point at an atom, and what one of them carries.
//
// Macros: AGGR, BONDS (whether a message is relu(h + e), not h).
#pragma once
#include "rows.cuh"

#define AGGR_SUM 0
#define AGGR_MEAN 1
#define AGGR_MAX 2
#define AGGR_GCN 3        // D^-1/2 A D^-1/2
#define AGGR_GCN_LOOPS 4  // D^-1/2 (A + I) D^-1/2, without the bonds' own self-loops

constexpr bool gcn = AGGR == AGGR_GCN || AGGR == AGGR_GCN_LOOPS;
constexpr int near = 4;  // bonds whose rows are asked for together: of most atoms all

// Where an atom's bonds lead, known before the rows are that the kernel before wrote. `rows` has the rows of bonds, or is null where bond i has row i.
struct Incoming {
    int begin = 0, end = 0, source[near], row[near];

    __device__ __forceinline__ Incoming() {}
    __device__ __forceinline__ Incoming(const Parameters& p, const int* rows, int atom, int num_atoms) {
        if (atom >= p.num_atoms) return;  // does not wait for num_atoms: all rows have a number of bonds, those of padding 0
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

    // What load(source, bond's row) gives of the first bonds
    template <class Load, class Loaded>
    __device__ __forceinline__ void load_near(Load load, Loaded (&loaded)[near]) const {
#pragma unroll
        for (int k = 0; k < near; k++)
            if (begin + k < end) loaded[k] = load(source[k], BONDS ? row[k] : 0);
    }
    // use(that, source, bond's row) of all bonds in their order
    template <class Load, class Loaded, class Use>
    __device__ __forceinline__ void each_bond(const Parameters& p, const int* rows, const Loaded (&loaded)[near], Load load, Use use) const {
#pragma unroll
        for (int k = 0; k < near; k++)
            if (begin + k < end) use(loaded[k], source[k], BONDS ? row[k] : 0);
        for (int bond = begin + near; bond < end; bond++) {
            const int from = __ldg(p.col + bond), at = BONDS ? row_of(rows, bond) : 0;
            use(load(from, at), from, at);
        }
    }
};
