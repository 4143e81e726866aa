// What the kernels on rows of atoms and bonds share. Terms of rows_*.cu and rows_*.cuh:
//
// - row: the numbers of one atom or bond. It has `stride` numbers: its `width` rounded up to whole quads, with zeros in between.
// - quad: four adjacent columns of a row, which one thread computes together.
// - team: threads side by side in a block that work on the same row, at most 32 (`Team`; in rows_warp_teams.cuh within one warp).
// - lane: a thread's number in its team. Lane l has quad l of the team's, or quads l, l + lanes, ... where it has `lane_quads` of them.
// - chunk: the quads that one team has; wider rows have several chunks, each in blocks of its own.
// - part: a block's number among the blocks of its chunk, which share the rows. Also what such a block leaves of a norm's moments or sums
//   for the next launch (layer_end.cuh).
// - record: what the teams of a block merge (`merge_block` and `merged` in rows_parts.cuh): the sums of a column, of a quad of distinct
//   bonds, or of eps.
//
// In a padded batch the rows beyond the last atom and the last bond are not read and become zero.
#pragma once
#include "layer_end.cuh"
#include "philox.cuh"
#include "rows_structs.h"  // molgcn/ops/layer_network/rows_launches.py

// Returns the number of real rows: of atoms, or of the directed bonds that point at them.
__device__ __forceinline__ int atoms_of(const Parameters& p) {
    const int atoms = __ldg(p.ptr + p.num_graphs);
    return p.bonds_of == nullptr ? atoms : __ldg(p.bonds_of + atoms);
}
__device__ __forceinline__ size_t offset_of(const Parameters& p, int row, int quad) { return size_t(row) * p.stride + 4 * quad; }
// Loads four numbers of a vector [width], and zeros beyond it.
__device__ __forceinline__ Quad load_vector(const Parameters& p, const real* vector, int quad) {
    return each([&](int e) { return 4 * quad + e < p.width ? vector[4 * quad + e] : real(0); });
}
__device__ __forceinline__ void store_vector(const Parameters& p, real* vector, int quad, const Quad& x) {
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (4 * quad + e < p.width) vector[4 * quad + e] = x.e[e];
}
__device__ __forceinline__ void store(const Parameters& p, real* rows, int row, int quad, const Quad& x) {
    *reinterpret_cast<Quad*>(rows + offset_of(p, row, quad)) = each([&](int e) { return 4 * quad + e < p.width ? x.e[e] : real(0); });
}

// A thread's team, and the thread's quad and rows. A block has as many whole teams as there is room for. Threads beyond the last team or
// quad are idle.
struct Team {
    int lane, index, per_block;  // index: of `per_block` teams
    int chunk, quad, part, parts;
    int first_row, step;  // the step is negative where the kernel goes from the last row to the first
    bool idle;

    __device__ __forceinline__ explicit Team(const Parameters& p) : Team(p, blockIdx.x, gridDim.x) {}
    __device__ __forceinline__ Team(const Parameters& p, int block, int blocks) {
        lane = threadIdx.x % p.lanes, index = threadIdx.x / p.lanes, per_block = blockDim.x / p.lanes;
        chunk = block % p.chunks, part = block / p.chunks, parts = blocks / p.chunks;
        quad = chunk * p.lanes + lane;
        idle = index >= per_block || 4 * quad >= p.stride;
        first_row = part * per_block + index, step = parts * per_block;
        if (p.backwards) first_row = p.num_atoms - 1 - first_row, step = -step;
    }
};
__device__ __forceinline__ bool is_row(const Parameters& p, int row) { return static_cast<uint32>(row) < static_cast<uint32>(p.num_atoms); }

// Loads four columns of a row, or zeros where there are no `rows`.
__device__ __forceinline__ Quad load_if(const Parameters& p, const real* rows, int row, int quad) {
    return rows != nullptr ? load(rows + offset_of(p, row, quad)) : Quad();
}

// The end of four columns of a gradient, as molgcn.ops.layer_network.backward.Produced describes it. It is loaded before the gradient is
// known.
struct Ending {
    Quad added, value;

    __device__ __forceinline__ Ending() {}
    __device__ __forceinline__ Ending(const Parameters& p, const Gradient& it, int row, int quad)
        : added(load_if(p, it.add, row, quad)), value(load_if(p, it.value, row, quad)) {}

    // Returns what it writes.
    __device__ __forceinline__ Quad write(const Parameters& p, const Gradient& it, int row, int quad, Quad x) const {
        add(x, added);
        const real scale = static_cast<real>(it.scale);
        if (it.value != nullptr) x = each([&](int e) { return through_relu(value.e[e] > real(0), x.e[e], scale); });
        store(p, it.out, row, quad, x);
        return x;
    }
};
__device__ __forceinline__ void write(const Parameters& p, const Gradient& it, int row, int quad, const Quad& x) {
    Ending(p, it, row, quad).write(p, it, row, quad, x);
}
