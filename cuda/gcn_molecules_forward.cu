// All layers of `molgcn::message_network` for a tile of whole molecules (gcn_molecules.cuh).
#include "gcn_layer_end.cuh"
#include "gcn_molecules.cuh"

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_molecules_forward(const __grid_constant__ Layers all) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    wait_for_previous();
    const Tile tile(all);
    if (tile.count == 0) return;
    if (!tile.fits) {  // its results are NaN, and it adds nothing to the gradients of weights
        for (int i = 0; i < all.num_layers; i++) fill_rows(tile, all.layers[i].output, width, i + 1 < all.num_layers ? 0.0f : number(0x7fffffffu));
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
        finish<true>(p, shared, tile.first, tile.count);
    }
}
