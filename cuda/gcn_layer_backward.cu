// One layer of `molgcn::message_network_backward`.
//
// dZ is the gradient of the layer's linear part, Â is symmetric, and G = Â dZ. Then dH = G W, which goes through dropout, relu and norm of
// the layer before. dW = G^T H is left to gcn_layer_weights.cu, for all layers together.
//
// Sums over all atoms for biases and norms are formed where a gradient is made, and the next kernel finishes them. With batch statistics
// that kernel needs them itself: it computes dZ from the output's gradient wherever it pulls it.
//
// Column sums of a layer with norm, relu and dropout:
//   no norm             0: bias
//   layer, batch norm   0: bias, 1: norm's bias, 2: norm's weight
//   batch statistics    0: norm's bias, 1: norm's weight; a bias before them has no gradient
// A layer without norm, relu and dropout has 0: bias.
#include "gcn_layer_gradients_end.cuh"

__device__ __forceinline__ void pull(const Parameters& p, const Shared& shared, int first, int count) {
    const auto nobody = [](int, int, const float4&) {};
    const auto keep = [&p](int node, int quad, const float4& sum) { four(p.kept + at_row(node) + 4 * quad) = sum; };
    if constexpr (statistics) {
        if (wide || p.in.on) {
            const auto waiting = [&](int quad) { return PendingGradient(p, shared, quad); };
            gather(p, shared, first, count, 0, quads, waiting, nobody, keep);
            return;
        }
    }
    const auto complete = [&p](int quad) {
        const float* column = p.gradient + 4 * quad;
        return [column](int node) { return load4(column + at_row(node)); };
    };
    gather(p, shared, first, count, 0, quads, complete, nobody, keep);
}

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_layer_backward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    const int num_nodes = num_atoms(p), first = blockIdx.x * rows, count = min(rows, num_nodes - first);
    if (INPUT_GRADIENT && p.grad_x != nullptr) {  // in the first layer's launch
        const size_t from = size_t(first > num_nodes ? first : num_nodes) * p.num_features, to = size_t(min(first + rows, p.num_nodes)) * p.num_features;
        for (size_t i = from + threadIdx.x; i < to; i += threads) p.grad_x[i] = 0.0f;
    }
    if (blockIdx.x > 0 && count <= 0) return;
    const bool is_start = p.grad_pooled != nullptr;
    Product product;
    if (!is_start) {
        if (p.in.layer > 0) product.start(p.fragments, 0, chunks, chunks, chunks);
        read_bonds(p, shared, first, count);
        if (statistics && p.in.on) read_columns(p.in, p, shared.columns);
    }
    wait_for_previous();
    Row given[early];
    if (!is_start) {
        read_sums(p, shared, num_nodes);
        if (count <= 0) return;
        __syncthreads();
        pull(p, shared, first, count);
        if (p.in.layer == 0) {
            __syncthreads();
            if (INPUT_GRADIENT) input_gradient(p, shared, first, count);
            return;
        }
        __syncthreads();
        if (!wide) load_rows<false>(given, p, first, count);  // under way during the product, which leaves no registers for it where it is a loop
        product.zero();
        product.multiply(shared.tile);
        if (wide) load_rows<false>(given, p, first, count);
        product.each(shared.scales, p.scales, 0, [&](int row, int column, const float2& x) { two(shared.own_rows + row * stride + column) = x; });
    }
    if (count <= 0) return;
    if (is_start) load_rows<false>(given, p, first, count);
    if (NORM != NORM_NONE && p.out.on) read_columns(p.out, p, shared.columns);
    __syncthreads();
    finish<false>(p, shared, first, count, num_nodes, given);
}
