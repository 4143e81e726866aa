// Walks the rows of an ordered edge list, in float or double.
//
// A group of lanes walks one row, for GROUP_HEADS of the HEADS. Each head has LANES of the lanes, and each lane has REPEATS vectors of
// VECTOR columns. Rows longer than PIECE are cut into pieces, whose results are joined in order afterwards: no atomics, and the same bits
// each time.
//
// Macros: DOUBLE, HEADS, CHANNELS; and VECTOR, LANES, REPEATS, GROUP_HEADS and PIECE, which molgcn/ops/row_walk.py chooses.
#pragma once
#include "real.cuh"
#include "row_walk_structs.h"  // molgcn/ops/row_walk.py

constexpr int threads = 256, group = LANES * GROUP_HEADS, groups = threads / group;
constexpr int head_blocks = (HEADS + GROUP_HEADS - 1) / GROUP_HEADS, width = HEADS * CHANNELS;
constexpr int unroll = REPEATS == 1 ? 4 : REPEATS == 2 ? 2 : 1;

struct alignas(VECTOR * sizeof(real)) Vector {
    real of[VECTOR];
};
struct Columns {
    Vector at[REPEATS];
};

// Which head a lane has, and which of the head's columns.
struct Lane {
    int head, first;
    bool there;

    __device__ __forceinline__ Lane() : Lane(blockIdx.x % head_blocks) {}
    __device__ __forceinline__ explicit Lane(int head_block) {
        const int lane = threadIdx.x % group;
        head = head_block * GROUP_HEADS + lane / LANES;
        first = lane % LANES * VECTOR;
        there = head < HEADS;
    }
    __device__ __forceinline__ bool has(int repeat) const { return there && first + repeat * LANES * VECTOR < CHANNELS; }
    __device__ __forceinline__ int column(int repeat) const { return head * CHANNELS + first + repeat * LANES * VECTOR; }
    __device__ __forceinline__ bool leads() const { return there && first == 0; }
};

__device__ __forceinline__ Columns load(const Lane& lane, const real* row, bool wanted = true) {
    Columns x;
#pragma unroll
    for (int r = 0; r < REPEATS; r++) {
        x.at[r] = Vector{};
        if (wanted && lane.has(r)) x.at[r] = *reinterpret_cast<const Vector*>(row + lane.column(r));
    }
    return x;
}
__device__ __forceinline__ void store(const Lane& lane, real* row, const Columns& x) {
#pragma unroll
    for (int r = 0; r < REPEATS; r++) {
        if (lane.has(r)) *reinterpret_cast<Vector*>(row + lane.column(r)) = x.at[r];
    }
}
// Calls visit(repeat, index in the vector) for every column of a lane.
template <class Visit>
__device__ __forceinline__ void each_column(const Visit& visit) {
#pragma unroll
    for (int r = 0; r < REPEATS; r++)
#pragma unroll
        for (int v = 0; v < VECTOR; v++) visit(r, v);
}
// Returns the sum over a head's lanes, the same in each of them.
__device__ __forceinline__ real sum_over_head(real x) {
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2) x += shuffle_xor(x, mask);
    return x;
}

// Entries of a row, or of one piece of a long row, in the order in which they are walked. row is -1 where there is nothing to do, piece is
// -1 where the row is whole.
struct Task {
    int row = -1, begin = 0, count = 0, piece = -1;
};
// Returns task `number`. Pieces come first, since they take longest.
__device__ __forceinline__ Task task_at(const Order& o, int number) {
    Task task;
    if (number < o.num_pieces) {
        task.piece = number;
        task.row = o.piece_row[number];
        task.begin = o.piece_begin[number];
        task.count = min(o.rowptr[task.row + 1] - task.begin, PIECE);
    } else if (number < o.num_pieces + o.num_rows) {
        const int row = number - o.num_pieces, begin = o.rowptr[row], count = o.rowptr[row + 1] - begin;
        if (count <= PIECE) task.row = row, task.begin = begin, task.count = count;
    }
    return task;
}
// Calls visit(task) for this group's share of the tasks. The groups of a warp stay together: those without a task get an empty one.
template <class Visit>
__device__ __forceinline__ void each_task(const Order& o, const Visit& visit) {
    const int tasks = o.num_pieces + o.num_rows, stride = gridDim.x / head_blocks * groups;
    const int here = blockIdx.x / head_blocks * groups + threadIdx.x / group, first_of_warp = here - threadIdx.x % 32 / group;
    for (int begin = 0; begin + first_of_warp < tasks; begin += stride) visit(task_at(o, begin + here));
}
