// The parts of a norm's moments and sums that kernels on rows leave, one for each block; see layer_end.cuh.
#pragma once
#include "rows_norm.cuh"

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

// Four columns' distances from one of the rows, so that nothing much larger than the deviation cancels.
struct QuadDistances {
    int count = 0;
    Distances columns[4];

    __device__ __forceinline__ void add(const Quad& x) {
        const bool is_first = count++ == 0;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (is_first) columns[e].origin = x.e[e];
            columns[e].add(x.e[e]);
        }
    }
    __device__ __forceinline__ ColumnMoments operator[](int e) const {
        const Moments moments = columns[e].moments(count);
        return {static_cast<real>(count), moments.mean, moments.squares};
    }
    static __device__ __forceinline__ void put(real* part, int column, int half, const ColumnMoments& x) {
        part[column] = x.mean, part[half + column] = x.squares;
        if (column == 0) part[2 * half] = x.count;
    }
};

// Sums for the gradients of the norm of `p.next`, whose output's gradient the kernel makes.
struct GradSums {
    NormSums sums[4];
    Norm norm;

    __device__ __forceinline__ void add(const Parameters& p, int row, int quad, const Quad& grad, const Quad& x) {
        const Quad g = activated_grad(p, p.next, row, quad, norm(x), grad), normal = norm.normal(x);
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (4 * quad + e < p.width) sums[e].add(g.e[e], normal.e[e]);
    }
    __device__ __forceinline__ NormSums operator[](int e) const { return sums[e]; }
    static __device__ __forceinline__ void put(real* part, int column, int half, const NormSums& x) { part[column] = x.bias, part[half + column] = x.weight; }
};

// Merges `number` records, `step` apart.
template <class Record>
__device__ __forceinline__ Record merged(const Record* records, int step, int number) {
    int some = 0;  // a record of rows; at the end of a padded batch others have none
    while (some + 1 < number && records[some * step].is_empty()) some++;
    const real origin = records[some * step].origin();
    real sums[3] = {};
#pragma unroll 4
    for (int i = 0; i < number; i++) records[i * step].add_to(sums, origin);
    return Record::of(sums, origin);
}

// Leaves the block's part in `p.left`. `memory` has room for a record of each thread's four columns.
template <class Record, class Sums>
__device__ __forceinline__ void leave_part(const Parameters& p, const Team& team, const Sums& mine, unsigned char* memory) {
    Record* all = reinterpret_cast<Record*>(memory);  // [teams][4 lanes]
    const int columns = 4 * p.lanes, first = team.chunk * columns;
    __syncthreads();
    if (team.index < team.per_block)
#pragma unroll
        for (int e = 0; e < 4; e++) all[team.index * columns + 4 * team.lane + e] = team.idle ? Record() : mine[e];
    // A few threads for each column merge some teams' records each, then one merges theirs.
    const int shares = min(team.per_block, static_cast<int>(blockDim.x) / columns), share = threadIdx.x / columns, column = threadIdx.x % columns;
    __syncthreads();
    Record* own = all + share * columns + column;
    if (share < shares) *own = merged(own, shares * columns, (team.per_block - share + shares - 1) / shares);
    __syncthreads();
    real* part = p.left + size_t(team.part) * part_numbers(p.width);
    if (threadIdx.x < min(columns, p.stride - first)) Sums::put(part, first + column, padded_columns(p.width), merged(all + column, columns, shares));
}
