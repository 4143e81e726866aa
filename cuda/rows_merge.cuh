// Sums over all blocks of a chunk of columns in an order that does not depend on which block is first.
#pragma once
#include "arrivals.cuh"
#include "rows.cuh"

// What another block of this kernel wrote
template <class Record>
__device__ __forceinline__ Record load_record(const Record* at) {
    Record it;
#pragma unroll
    for (int i = 0; i < int(sizeof(Record) / 4); i++) reinterpret_cast<float*>(&it)[i] = load_past_l1(reinterpret_cast<const float*>(at) + i);
    return it;
}

// Merges `number` times `count` records in an order that depends on these and on `shares`, threads that share a record's, and uses the results.
// `mine` in shared memory has room for as many times `count`.
template <class Record, class Use>
__device__ __forceinline__ void merge_parts(const Record* parts, int number, int count, int shares, Record* mine, Use use) {
    for (int item = threadIdx.x; item < shares * count; item += blockDim.x) {
        const int i = item % count;
        Record sum = {};
#pragma unroll 8
        for (int k = item / count; k < number; k += shares) sum.merge(load_record(parts + size_t(k) * count + i));
        mine[item] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        Record sum = mine[i];
        for (int share = 1; share < shares; share++) sum.merge(mine[share * count + i]);
        use(i, sum);
    }
}

// Every block of a set (`part` of `parts`) hands in `count` records. The last block of each group to arrive merges the group's, and the last
// group the groups'; `write(i, record)` then takes record i of all. `mine` has room for `room` times as many.
template <class Record, class Write>
__device__ __forceinline__ void merge_blocks(const Merging& it, int set, int part, int parts, int count, Record* mine, int room, int* flag, Write write) {
    const int groups = (parts + it.group - 1) / it.group, group = part / it.group, first = group * it.group, size = min(it.group, parts - first);
    const int shares = min(room, max(1, static_cast<int>(blockDim.x) / count));
    Record* all = reinterpret_cast<Record*>(it.records) + size_t(set) * (parts + groups) * count;
    Record* of_groups = all + size_t(parts) * count;
    uint32* arrivals = it.arrivals + set * (groups + 1);
    for (int i = threadIdx.x; i < count; i += blockDim.x) all[size_t(part) * count + i] = mine[i];
    if (!last_to_arrive(arrivals + group, size, flag)) return;
    if (groups == 1) return merge_parts(all, size, count, shares, mine, write);
    merge_parts(all + size_t(first) * count, size, count, shares, mine, [&](int i, const Record& sum) { of_groups[size_t(group) * count + i] = sum; });
    if (last_to_arrive(arrivals + groups, groups, flag)) merge_parts(of_groups, groups, count, shares, mine, write);
}

// The teams' records [teams][count] in shared memory are merged into those of the first, then with the other blocks'.
template <class Record, class Write>
__device__ __forceinline__ void merge_teams(const Merging& it, int set, const Tile& tile, int count, Record* records, int* flag, Write write) {
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        for (int team = 1; team < tile.teams; team++) records[i].merge(records[team * count + i]);
    __syncthreads();
    merge_blocks(it, set, tile.part, tile.parts, count, records, tile.teams, flag, write);
}
