// Teams of lanes of one warp that hold a whole row in registers. rows.cuh explains the terms.
//
// Macro: LANE_QUADS (the most quads of a lane).
#pragma once
#include "rows.cuh"

constexpr int lane_quads = LANE_QUADS;

struct WarpTeam {
    int lanes, lane;
    int first, step;  // rows; all lanes of a warp take as many steps, so that they meet in sums

    __device__ __forceinline__ explicit WarpTeam(const Parameters& p) {
        const int thread = blockIdx.x * blockDim.x + threadIdx.x;
        lanes = p.lanes, lane = threadIdx.x % lanes, first = thread / lanes, step = gridDim.x * blockDim.x / lanes;
    }
    // Returns whether the warp's first row exists.
    __device__ __forceinline__ bool more(const Parameters& p, int row) const { return row - static_cast<int>(threadIdx.x % 32) / lanes < p.num_atoms; }

    // Returns the sum over a row's lanes, at each of them.
    __device__ __forceinline__ real sum(real x) const {
        for (int mask = lanes / 2; mask > 0; mask >>= 1) x += shuffle_xor(x, mask);
        return x;
    }
    // Calls visit(i, quad) for this lane's quads, which are `lane`, `lane + lanes` and so on.
    template <class Visit>
    __device__ __forceinline__ void each_quad(const Parameters& p, Visit visit) const {
#pragma unroll
        for (int i = 0; i < lane_quads; i++)
            if (4 * (lane + i * lanes) < p.stride) visit(i, lane + i * lanes);
    }
    __device__ __forceinline__ void load_row(Quad (&x)[lane_quads], const Parameters& p, const real* rows, int row, bool there) const {
        if (there) each_quad(p, [&](int i, int quad) { x[i] = load(rows + offset_of(p, row, quad)); });
    }
    // Returns the sum over a row's columns, where compute(i, quad) returns four of them.
    template <class Compute>
    __device__ __forceinline__ real over_row(const Parameters& p, Compute compute) const {
        real total = 0;
        each_quad(p, [&](int i, int quad) {
            const Quad x = compute(i, quad);
            total += x.e[0] + x.e[1] + (x.e[2] + x.e[3]);
        });
        return sum(total);
    }
};

__device__ __forceinline__ Quad product(const Quad& x, const Quad& y) {
    return each([&](int e) { return x.e[e] * y.e[e]; });
}
