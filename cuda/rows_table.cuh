// The sums over the bonds of a table's distinct rows that a block leaves. Each block has a range of `codes` rows of the table.
#pragma once
#include "rows_parts.cuh"

struct Sums {
    Quad value;
    __device__ __forceinline__ void merge(const Sums& x) { add(value, x.value); }
};

__device__ __forceinline__ int ranges_of(const Parameters& p) { return (p.num_bond_rows + p.codes - 1) / p.codes; }

struct TableSums {
    Sums *table, *mine;  // [teams][codes][lanes]: each number belongs to one thread
    int first;           // row of the table

    __device__ __forceinline__ TableSums(const Parameters& p, const Team& team, unsigned char* memory, int first)
        : table(reinterpret_cast<Sums*>(memory)), mine(table + team.index * p.codes * p.lanes + team.lane), first(first) {}

    __device__ __forceinline__ void clear(const Parameters& p, const Team& team) const {
        for (int code = 0; team.index < team.per_block && code < p.codes; code++) mine[code * p.lanes] = {};
    }
    __device__ __forceinline__ void add(const Parameters& p, int row, const Quad& term) const {
        if (row >= first && row < first + p.codes) ::add(mine[(row - first) * p.lanes].value, term);
    }
    // Merges the sums of the block's teams and leaves them.
    __device__ __forceinline__ void leave(const Parameters& p, const Team& team) const {
        merge_block(table, team.per_block, p.codes * p.lanes);
        real* part = p.table_parts + size_t(team.part) * p.num_bond_rows * p.stride;
        for (int i = threadIdx.x; i < p.codes * p.lanes; i += blockDim.x) {
            const int row = first + i / p.lanes, column = 4 * (team.chunk * p.lanes + i % p.lanes);
            if (row >= p.num_bond_rows || column >= p.stride) continue;
            Quad all = table[i].value, *to = reinterpret_cast<Quad*>(part + size_t(row) * p.stride + column);
            if (p.adds) ::add(all, *to);
            *to = all;
        }
    }
};
