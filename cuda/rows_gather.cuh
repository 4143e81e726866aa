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

    __device__ __forceinline__ Incoming(const Parameters& p, const int* rows, int atom, bool there) {
        if (!there) return;
        begin = __ldg(p.rowptr + atom), end = __ldg(p.rowptr + atom + 1);
#pragma unroll
        for (int k = 0; k < near; k++)
            if (begin + k < end) {
                source[k] = __ldg(p.col + begin + k);
                if (BONDS) row[k] = row_of(rows, begin + k);
            }
    }
    static __device__ __forceinline__ int row_of(const int* rows, int bond) { return rows == nullptr ? bond : __ldg(rows + bond); }

    // load(source, bond's row) of every bond, and use(what it gave, source, bond's row) in their order
    template <class Load, class Use>
    __device__ __forceinline__ void each_bond(const Parameters& p, const int* rows, Load load, Use use) const {
        decltype(load(0, 0)) loaded[near];
#pragma unroll
        for (int k = 0; k < near; k++)
            if (begin + k < end) loaded[k] = load(source[k], BONDS ? row[k] : 0);
#pragma unroll
        for (int k = 0; k < near; k++)
            if (begin + k < end) use(loaded[k], source[k], BONDS ? row[k] : 0);
        for (int bond = begin + near; bond < end; bond++) {
            const int from = __ldg(p.col + bond), at = BONDS ? row_of(rows, bond) : 0;
            use(load(from, at), from, at);
        }
    }
};
