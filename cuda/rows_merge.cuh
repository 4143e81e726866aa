// Sums of a chunk of columns over all blocks, in an order that does not depend on which block is first.
#pragma once
#include "arrivals.cuh"
#include "rows.cuh"

// Loads what another block of this kernel wrote.
template <class Record>
__device__ __forceinline__ Record load_record(const Record* at) {
    Record it;
#pragma unroll
    for (int i = 0; i < int(sizeof(Record) / 4); i++) reinterpret_cast<float*>(&it)[i] = load_past_l1(reinterpret_cast<const float*>(at) + i);
    return it;
}

// Merges records [number][count] in shared memory into the first `count`.
template <class Record>
__device__ __forceinline__ void merge_block(Record* records, int number, int count) {
    __syncthreads();
#pragma unroll 1
    for (int half; number > 1; number = half) {
        half = (number + 1) / 2;
#pragma unroll 1
        for (int i = threadIdx.x; i < (number - half) * count; i += blockDim.x) records[i].merge(records[half * count + i]);
        __syncthreads();
    }
}

// Merges what `number` blocks handed in, `count` records each, with as many threads as there are, and calls use(i, record). `mine` in
// shared memory has room for `room` times `count` records.
template <class Record, class Use>
__device__ __forceinline__ void merge_records(const Record* parts, int number, int count, Record* mine, int room, Use use) {
    const int shares = min(min(room, number), max(1, static_cast<int>(blockDim.x) / count));  // of a record's parts
    for (int item = threadIdx.x; item < shares * count; item += blockDim.x) {
        const int i = item % count;
        Record sum = {};
#pragma unroll 8
        for (int k = item / count; k < number; k += shares) sum.merge(load_record(parts + size_t(k) * count + i));
        mine[item] = sum;
    }
    merge_block(mine, shares, count);
    for (int i = threadIdx.x; i < count; i += blockDim.x) use(i, mine[i]);
}

// Merges the records of a set of blocks, of which this is `part` of `parts`. Every block hands in the records [number][count] that it has
// in shared memory, merged. The last block of each group to arrive merges the group's, and the last group merges the groups'. write(i,
// record) then receives record i of all.
template <class Record, class Write>
__device__ __forceinline__ void merge_blocks(const Merging& it, int set, int part, int parts, int count, Record* mine, int number, int* flag, Write write) {
    merge_block(mine, number, count);
    if (parts == 1) {
        for (int i = threadIdx.x; i < count; i += blockDim.x) write(i, mine[i]);
        return;
    }
    const int groups = (parts + it.group - 1) / it.group, group = part / it.group, first = group * it.group, size = min(it.group, parts - first);
    Record* all = reinterpret_cast<Record*>(it.records) + size_t(set) * (parts + groups) * count;
    Record* of_groups = all + size_t(parts) * count;
    uint32* arrivals = it.arrivals + set * (groups + 1);
    for (int i = threadIdx.x; i < count; i += blockDim.x) all[size_t(part) * count + i] = mine[i];
    if (!last_to_arrive(arrivals + group, size, flag)) return;
    if (groups == 1) return merge_records(all, size, count, mine, number, write);
    merge_records(all + size_t(first) * count, size, count, mine, number, [&](int i, const Record& sum) { of_groups[size_t(group) * count + i] = sum; });
    if (last_to_arrive(arrivals + groups, groups, flag)) merge_records(of_groups, groups, count, mine, number, write);
}
