// What the kernels on rows of atoms and bonds share: four columns at a time, the columns and rows of a thread, and the end of a gradient.
//
// A row has `stride` numbers: its width rounded up to whole quads of four, with zeros in between. In a padded batch the rows beyond the
// last atom and the last bond are not read and become zero.
#pragma once
#include "layer_end.cuh"
#include "philox.cuh"
#include "rows_structs.h"  // molgcn/ops/layer_network/rows_launches.py

__device__ __forceinline__ int atoms_of(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }
__device__ __forceinline__ size_t place(const Parameters& p, int row, int quad) { return size_t(row) * p.stride + 4 * quad; }
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
    *reinterpret_cast<Quad*>(rows + place(p, row, quad)) = each([&](int e) { return 4 * quad + e < p.width ? x.e[e] : real(0); });
}

// Which part of the work a thread of a block has. `lanes` threads side by side are a team; they have adjacent quads of one row, and a block
// has as many teams as there is room for. Blocks share the quads in `chunks`; `part` of `parts` is the block's number among those of its
// chunk. Threads beyond the last team or quad are idle.
struct Tile {
    int lane, team, teams, chunk, quad, part, parts;
    bool idle;

    __device__ __forceinline__ explicit Tile(const Parameters& p) : Tile(p, blockIdx.x, gridDim.x) {}
    __device__ __forceinline__ Tile(const Parameters& p, int block, int blocks) {
        lane = threadIdx.x % p.lanes, team = threadIdx.x / p.lanes, teams = blockDim.x / p.lanes;
        chunk = block % p.chunks, part = block / p.chunks, parts = blocks / p.chunks;
        quad = chunk * p.lanes + lane;
        idle = team >= teams || 4 * quad >= p.stride;
    }
    __device__ __forceinline__ int first_row() const { return part * teams + team; }
    __device__ __forceinline__ int step() const { return parts * teams; }
};

// Loads four columns of a row, or zeros where there are no `rows`.
__device__ __forceinline__ Quad load_if(const Parameters& p, const real* rows, int row, int quad) {
    return rows != nullptr ? load(rows + place(p, row, quad)) : Quad();
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
        if (it.value != nullptr) x = each([&](int e) { return value.e[e] > real(0) ? x.e[e] * scale : real(0); });
        store(p, it.out, row, quad, x);
        return x;
    }
};
__device__ __forceinline__ void write(const Parameters& p, const Gradient& it, int row, int quad, const Quad& x) {
    Ending(p, it, row, quad).write(p, it, row, quad, x);
}
