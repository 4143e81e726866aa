// All graph convolutions of `molgcn::layer_network` for a tile of whole molecules (gcn_molecules.cuh), and their pooling.
#include "gcn_layer_end.cuh"
#include "gcn_layer_pooling.cuh"
#include "gcn_molecules.cuh"

// Pools the tile's molecules, from the last layer's rows in own_rows. Those of a tile that does not fit are NaN. The last block also has the
// molecules of no tile, which are padding and have no atoms.
__device__ __forceinline__ void pool(const Layers& all, const Shared& shared, const Tile& tile) {
    const Parameters& p = all.layers[all.num_layers - 1];
    const int* graphs = all.tile_ptr + blockIdx.x;
    const int first_graph = __ldg(graphs), num_graphs = (blockIdx.x + 1 < gridDim.x ? __ldg(graphs + 1) : p.num_graphs) - first_graph;
    const float4 broken = make_float4(number(0x7fffffffu), number(0x7fffffffu), number(0x7fffffffu), number(0x7fffffffu));
    for (int item = threadIdx.x; item < num_graphs * quads; item += threads) {
        const int graph = first_graph + item / quads, quad = item % quads;
        const int begin = __ldg(p.ptr + graph) - tile.first, end = __ldg(p.ptr + graph + 1) - tile.first;
        Pooled sum(end - begin);
#pragma unroll 4
        for (int row = begin; row < end; row++) sum.add(tile.fits ? four(shared.own_rows + row * stride + 4 * quad) : broken);
        sum.leave(p, graph, quad, end - begin);
    }
}

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_molecules_forward(const __grid_constant__ Layers all) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    wait_for_previous();
    const Tile tile(all);
    if (tile.count == 0 || !tile.fits) {  // a tile that does not fit adds nothing to the gradients of weights
        for (int i = 0; i + 1 < all.num_layers; i++) fill_rows(tile, all.layers[i].output, width, 0.0f);
        pool(all, shared, tile);
        return;
    }
    read_bonds(all.layers[0], shared, tile.first, tile.count);
    bring_rows(shared, tile, all.layers[0].input, all.layers[0].in_width);
#pragma unroll 1
    for (int i = 0; i < all.num_layers; i++) {
        const Parameters& p = all.layers[i];
        Product product;
        product.zero();
        product.start(p.fragments, 0, p.in_width / 16, p.in_width / 16, chunks);
        __syncthreads();
        pull(p, shared, tile, p.in_width, [](int, int, const float4&) {});
        __syncthreads();
        product.multiply(shared.tile);
        product.each(shared.scales, p.scales, 0, [&](int row, int column, const float2& x) { two(shared.own_rows + row * stride + column) = x; });
        read_parameters(p, shared);
        __syncthreads();
        finish(p, shared, tile.first, tile.count);
    }
    __syncthreads();
    pool(all, shared, tile);
}
