// What the kernels of whole layers share: rows in quads of four columns, and sums over all atoms.
//
// Macros: HIDDEN (H), PRECISION.
#pragma once
#include "epilogue.cuh"
#include "halves.cuh"
#include "kinds.cuh"
#include "precision.cuh"
#include "philox.cuh"
#include "quads.cuh"
#include "moments.cuh"

#define NORM_STATISTICS 3  // batch norm in training: what follows a layer's product waits for all atoms, so the next kernel does it

constexpr int width = (HIDDEN + 15) / 16 * 16;
constexpr int quads = width / 4;  // of four columns
constexpr int chunks = width / 16;
constexpr bool wide = chunks >= 16;  // for NVRTC's time: what else would be unrolled far is a loop, and a first or last layer has no code of its own
constexpr int lanes = quads <= 4 ? 4 : quads <= 8 ? 8 : quads <= 16 ? 16 : 32;  // that finish a row
constexpr int lane_quads = (quads + lanes - 1) / lanes;                         // of a row, in each of them

// Returns the bits of the largest number of a row, from the largest of each lane.
__device__ __forceinline__ uint32 row_most(float x) {
    if constexpr (lanes == 32) return static_cast<uint32>(largest(static_cast<int>(bits(x))));
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask >>= 1) x = fmaxf(x, shuffle_xor(x, mask));
    return bits(x);
}

__device__ __forceinline__ size_t at_row(int node) { return size_t(node) * width; }

// Returns an element of a vector [HIDDEN], and zero beyond it.
__device__ __forceinline__ float parameter(const float* vector, int column) { return column < HIDDEN ? __ldg(vector + column) : 0.0f; }

// Returns y before relu. Forward and backward agree to the bit, and so on which activations relu keeps.
__device__ __forceinline__ float normalised(float raw, float mean, float factor, float bias) { return Column{mean, 0.0f, factor, bias}(raw); }
// The factor of what dropout keeps.
template <class Parameters>
__device__ __forceinline__ float kept_scale(const Parameters& p) { return DROPOUT ? p.dropout_scale : 1.0f; }
