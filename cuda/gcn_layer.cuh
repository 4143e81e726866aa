// What the kernels of molecules (gcn_molecules.cuh) and the pooling after batch statistics share: arguments and the prepared batch.
//
// Features lie in global memory, in rows of `width` floats.
// Rows beyond the last atom of a padded batch (ptr[num_graphs], read on the device) are neither read nor counted.
//
// Macros: HIDDEN (H), PRECISION, NORM, DROPOUT, SELF_LOOPS, POOL, INPUT_GRADIENT (backward computes the gradient of x).
// Macros of the product: WARP_ROWS and WARP_COLUMNS (warps of a block), ROW_TILES and COLUMN_TILES (16 x 16 blocks of a warp), MIN_BLOCKS
// (on a multiprocessor).
#pragma once
#include "gcn_layer_basics.cuh"

constexpr int depth = width < 64 ? 64 : width;             // columns of a block's rows in shared memory
constexpr int stride = depth % 32 == 0 ? depth + 16 : depth;  // two rows side by side use all banks
constexpr int warps = WARP_ROWS * WARP_COLUMNS;
constexpr int threads = 32 * warps;
constexpr int rows = 16 * ROW_TILES * WARP_ROWS;
constexpr int kinds = NORM == NORM_NONE ? 1 : NORM == NORM_STATISTICS ? 2 : 3;  // column sums of backward (gcn_molecules_backward.cu)
constexpr bool statistics = NORM == NORM_STATISTICS;
constexpr int teams = threads / lanes;
constexpr int shares = threads < quads ? 1 : threads / quads;                   // threads that share a quad's sums

#include "gcn_layer_structs.h"  // molgcn/ops/gcn_layers_arguments.py

__device__ __forceinline__ int num_atoms(const Parameters& p) { return __ldg(p.ptr + p.num_graphs); }

__device__ __forceinline__ float* tile_sums(const Parameters& p) { return p.out.sums + size_t(blockIdx.x) * kinds * width; }
