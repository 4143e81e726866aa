// Kernels that need a whole row at a time: the lanes of a warp, or a part of them, go over it together, and over the rows of a grid.
#pragma once
#include "rows.cuh"

struct Line {
    int lanes, lane, first, step;  // rows: all lanes of a warp take as many steps, so that they meet in sums

    __device__ __forceinline__ explicit Line(const Parameters& p) {
        const int thread = blockIdx.x * blockDim.x + threadIdx.x;
        lanes = p.lanes, lane = threadIdx.x % lanes, first = thread / lanes, step = gridDim.x * blockDim.x / lanes;
    }
    // Sum over a row's lanes, at each of them
    __device__ __forceinline__ real sum(real x) const {
        for (int mask = lanes / 2; mask > 0; mask >>= 1) x += shuffle_xor(x, mask);
        return x;
    }
    // visit(quad) of this lane's quads
    template <class Visit>
    __device__ __forceinline__ void each_quad(const Parameters& p, Visit visit) const {
        for (int quad = lane; 4 * quad < p.stride; quad += lanes) visit(quad);
    }
    // Sum over a row's columns of compute(quad, column of the quad)
    template <class Compute>
    __device__ __forceinline__ real over_row(const Parameters& p, bool there, Compute compute) const {
        real total = 0;
        if (there) each_quad(p, [&](int quad) { total += compute(quad); });
        return sum(total);
    }
    // The number of steps is that of the warp's first row
    __device__ __forceinline__ bool more(const Parameters& p, int row) const { return row - static_cast<int>(threadIdx.x % 32) / lanes < p.num_atoms; }
};

__device__ __forceinline__ real sum_of(const Quad& x) { return x.e[0] + x.e[1] + (x.e[2] + x.e[3]); }
__device__ __forceinline__ real product_of(const Quad& x, const Quad& y) {
    return sum_of(each([&](int e) { return x.e[e] * y.e[e]; }));
}
