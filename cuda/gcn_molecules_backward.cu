// Gradients of some graph convolutions, the last first, for a tile of whole molecules (gcn_molecules.cuh).
//
// dZ is the gradient of the layer's linear part, Â is symmetric, and G = Â dZ. Then dH = G W, which goes through dropout, relu and norm of
// the layer before. dW = G^T H is left to gcn_layer_weights.cu, for many layers together. A launch begins with the gradient of pooling, or
// with the one that the launch before has left. Each tile leaves its own column sums, for biases and norms:
//   no norm             0: bias
//   layer, batch norm   0: bias, 1: norm's bias, 2: norm's weight
// A layer without norm, relu and dropout has 0: bias.
#include "gcn_layer_gradients_end.cuh"
#include "gcn_molecules.cuh"

// Leaves column sums of zero in all layers.
__device__ __forceinline__ void leave_nothing(const Layers& all) {
    for (int i = 0; i < all.num_layers; i++)
        for (int column = threadIdx.x; column < kinds * width; column += threads) tile_sums(all.layers[i])[column] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_molecules_backward(const __grid_constant__ Layers all) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    wait_for_previous();
    const Tile tile(all);
    const Parameters& last = all.layers[all.num_layers - 1];
    if (INPUT_GRADIENT && last.grad_x != nullptr) {
        const size_t begin = size_t(num_atoms(last)) * last.num_features, end = size_t(last.num_nodes) * last.num_features;
        for (size_t i = begin + blockIdx.x * threads + threadIdx.x; i < end; i += size_t(gridDim.x) * threads) last.grad_x[i] = 0.0f;
    }
    if (tile.count == 0 || !tile.fits) {
        leave_nothing(all);
        for (int i = 0; i < all.num_layers; i++) fill_rows(tile, all.layers[i].kept, width, 0.0f);
        if (INPUT_GRADIENT) fill_rows(tile, last.grad_x, last.num_features, number(0x7fffffffu));
        return;
    }
    read_bonds(all.layers[0], shared, tile.first, tile.count);
    if (all.layers[0].grad_pooled == nullptr) bring_rows(shared, tile, all.layers[0].gradient, width);
#pragma unroll 1
    for (int i = 0; i < all.num_layers; i++) {
        const Parameters& p = all.layers[i];
        Row given[early];
        if (p.grad_pooled == nullptr) {
            Product product;
            if (p.in.layer > 0) product.start(p.fragments, 0, chunks, chunks, chunks);
            __syncthreads();
            pull(p, shared, tile, width, [&p](int node, int quad, const float4& sum) { four(p.kept + at_row(node) + 4 * quad) = sum; });
            __syncthreads();
            if (p.in.layer == 0) {
                if (INPUT_GRADIENT) input_gradient(p, shared, tile.first, tile.count);
                return;
            }
            if (!wide) load_rows(given, p, tile.first, tile.count);  // under way during the product
            product.zero();
            product.multiply(shared.tile);
            if (wide) load_rows(given, p, tile.first, tile.count);
            product.each(shared.scales, p.scales, 0, [&](int row, int column, const float2& x) { two(shared.own_rows + row * stride + column) = x; });
        } else {
            load_rows(given, p, tile.first, tile.count);
        }
        if (NORM != NORM_NONE && p.out.on) read_columns(p.out, p, shared.columns);
        __syncthreads();
        finish(p, shared, tile.first, tile.count, given);
    }
}
