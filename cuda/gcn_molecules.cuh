// All layers of a tile of whole molecules in one launch, where no norm couples molecules: features and gradients stay in shared memory
// from layer to layer, and no bond leaves a block.
//
// Macros besides those of gcn_layer.cuh: MAX_LAYERS.
#pragma once
#include "gcn_layer_tile.cuh"
#include "gcn_molecules_structs.h"  // molgcn/ops/gcn_layers_arguments.py

static_assert(!statistics, "batch statistics couple molecules");

struct Tile {  // the atoms of a block
    int first, count;
    bool fits;  // else a molecule has more atoms than was promised

    __device__ explicit Tile(const Layers& all) {
        const int* ptr = all.layers[0].ptr;
        first = __ldg(ptr + __ldg(all.tile_ptr + blockIdx.x));
        count = __ldg(ptr + __ldg(all.tile_ptr + blockIdx.x + 1)) - first;
        fits = count <= rows;
    }
};

// Brings the tile's rows into own_rows.
__device__ __forceinline__ void bring_rows(const Shared& shared, const Tile& tile, const float* from, int in_width) {
    const int in_quads = in_width / 4;
#pragma unroll 4
    for (int item = threadIdx.x; item < tile.count * in_quads; item += threads) {
        const int row = item / in_quads, quad = item % in_quads;
        four(shared.own_rows + row * stride + 4 * quad) = load4(from + size_t(tile.first + row) * in_width + 4 * quad);
    }
}

// tile = Â own_rows. done(node, quad, sum) receives the results.
template <class Done>
__device__ __forceinline__ void pull(const Parameters& p, const Shared& shared, const Tile& tile, int in_width, Done done) {
    pull_neighbours(p, shared, tile.first, tile.count, in_width / 4, done);
}

// Fills the tile's rows of an array.
__device__ __forceinline__ void fill_rows(const Tile& tile, float* rows_of_all, int columns, float value) {
    for (size_t i = threadIdx.x; rows_of_all != nullptr && i < size_t(tile.count) * columns; i += threads) rows_of_all[size_t(tile.first) * columns + i] = value;
}
