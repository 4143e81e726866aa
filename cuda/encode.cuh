// What the kernels of molgcn::encode share: both maps as one matrix, and rows of its inputs in shared memory.
//
// The matrix has the walks' map below that of the features if encodings are added, else both on its diagonal. The inputs of each map, and
// its results, fill whole quads of four columns, with zeros in between. No quad belongs to two maps then.
//
// Macros: IN, OUT (columns of the features and of their encoding), MORE_IN, MORE_OUT (of the walks, 0 without), ADD (the encodings), NORM
// (the walks).
#pragma once
#include "quads.cuh"
#include "encode_structs.h"  // molgcn/ops/encode_cuda.py

__device__ constexpr int quads_of(int columns) { return (columns + 3) / 4; }
constexpr int x_quads = quads_of(IN), in_quads = x_quads + quads_of(MORE_IN), in_stride = 4 * in_quads;
constexpr int first_quad = ADD ? 0 : quads_of(OUT);  // of the walks' encoding
constexpr int out_quads = ADD ? quads_of(OUT) : quads_of(OUT) + quads_of(MORE_OUT), out_stride = 4 * out_quads;
constexpr int width = ADD ? OUT : OUT + MORE_OUT;            // of a row of states
constexpr bool aligned = OUT % 4 == 0 && MORE_OUT % 4 == 0;  // states have whole quads
constexpr int norm_size = 4 * quads_of(3 * MORE_IN);

// Where a quad of results lies in a row of states: its first column, and the number of its columns.
struct States {
    int column, size;

    __device__ __forceinline__ explicit States(int quad) {
        const bool more = !ADD && quad >= first_quad;
        column = more ? OUT + 4 * (quad - first_quad) : 4 * quad;
        size = min(4, (more ? width : OUT) - column);
    }
};

// Copies `rows` rows of inputs from `first` on to shared memory, with zeros from `end` on. `norm` has a mean, a factor and what is added
// for each column of the walks. Loads are without branches, so that several are under way at a time.
__device__ __forceinline__ void bring_rows(const Parameters& p, float* tile, const float* norm, int first, int rows, int end) {
#pragma unroll 8
    for (int i = threadIdx.x; i < rows * in_stride; i += blockDim.x) {
        const int row = first + i / in_stride, column = i % in_stride, step = column - 4 * x_quads;
        const bool walks = MORE_IN > 0 && step >= 0, there = row < end && (walks ? step < MORE_IN : column < IN);
        const float* from = walks ? p.walks + size_t(row) * MORE_IN + step : p.x + size_t(row) * IN + column;
        float value = there ? __ldg(from) : 0.0f;
        if (NORM && walks && there) value = fmaf(value - norm[step], norm[MORE_IN + step], norm[2 * MORE_IN + step]);
        tile[i] = value;
    }
}
