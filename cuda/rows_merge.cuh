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

// Every block of a set (`part` of `parts`) hands in `count` records. The last block of each group to arrive merges the group's, and the last
// group the groups', each in their order; `write(i, record)` then takes record i of all.
template <class Record, class Write>
__device__ __forceinline__ void merge_blocks(const Merging& it, int set, int part, int parts, int count, const Record* mine, int* flag, Write write) {
    const int groups = (parts + it.group - 1) / it.group, group = part / it.group, first = group * it.group, size = min(it.group, parts - first);
    Record* all = reinterpret_cast<Record*>(it.records) + size_t(set) * (parts + groups) * count;
    Record* of_groups = all + size_t(parts) * count;
    uint32* arrivals = it.arrivals + set * (groups + 1);
    const auto merged = [&](const Record* from, int number) {
        Record sum = load_record(from);
#pragma unroll 8
        for (int k = 1; k < number; k++) sum.merge(load_record(from + size_t(k) * count));
        return sum;
    };
    for (int i = threadIdx.x; i < count; i += blockDim.x) all[size_t(part) * count + i] = mine[i];
    if (!last_to_arrive(arrivals + group, size, flag)) return;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const Record sum = merged(all + size_t(first) * count + i, size);
        if (groups == 1)
            write(i, sum);
        else
            of_groups[size_t(group) * count + i] = sum;
    }
    if (groups == 1 || !last_to_arrive(arrivals + groups, groups, flag)) return;
    for (int i = threadIdx.x; i < count; i += blockDim.x) write(i, merged(of_groups + i, groups));
}

// The teams' records [teams][count] in shared memory are merged into those of the first, then with the other blocks'.
template <class Record, class Write>
__device__ __forceinline__ void merge_teams(const Merging& it, int set, const Tile& tile, int count, Record* records, int* flag, Write write) {
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        for (int team = 1; team < tile.teams; team++) records[i].merge(records[team * count + i]);
    __syncthreads();
    merge_blocks(it, set, tile.part, tile.parts, count, records, flag, write);
}
