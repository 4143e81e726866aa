// One layer of `molgcn::message_network`: neighbours pulled, product, bias, norm, relu, dropout and residual in one launch.
//
// With batch statistics a layer ends with its norm's input and the sums for its statistics. The next layer's kernel applies norm, relu,
// dropout and residual to whatever it pulls, and stores its own atoms' results.
#include "gcn_layer_end.cuh"

__device__ __forceinline__ void pull(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads) {
    const auto nobody = [](int, int, const float4&) {};
    if constexpr (statistics) {
        if (wide || p.in.on) {
            const auto waiting = [&](int quad) { return Pending(p, shared, quad); };
            const auto keep = [&p](int node, int quad, const float4& x) {
                if (p.in.on) four(p.kept + at_row(node) + 4 * quad) = x;
            };
            gather(p, shared, first, count, first_quad, count_quads, waiting, keep, nobody);
            return;
        }
    }
    const auto complete = [&p](int quad) {
        const float* column = p.input + 4 * quad;
        return [&p, column](int node) { return load4(column + size_t(node) * p.in_width); };
    };
    gather(p, shared, first, count, first_quad, count_quads, complete, nobody, nobody);
}

// Merges the mean and squared distances of the product's columns over all atoms.
__device__ __forceinline__ void add_statistics(const Parameters& p, const Shared& shared, int count, int num_nodes) {
    for (int item = threadIdx.x; item < shares * quads; item += threads) {
        const int quad = item % quads, share = item / quads;
        const float* begin = shared.own_rows + 4 * quad;
        Distances all[4] = {{begin[0]}, {begin[1]}, {begin[2]}, {begin[3]}};
#pragma unroll 4
        for (int row = share; row < count; row += shares) {
            const float4 x = *reinterpret_cast<const float4*>(begin + row * stride);
#pragma unroll
            for (int e = 0; e < 4; e++) all[e].add(at(x, e));
        }
        leave_distances(shared.tile, all, quad, share);
    }
    leave_statistics(p, shared.tile, shared.own_rows, shared.flag, count, num_nodes);
}

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_layer_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    const int num_nodes = num_atoms(p), first = blockIdx.x * rows, count = min(rows, num_nodes - first);
    if (blockIdx.x > 0 && count <= 0) return;
    Product product;
    product.zero();
    product.start(p.fragments, 0, min(depth, p.in_width) / 16, p.in_width / 16, chunks);
    read_bonds(p, shared, first, count);
    wait_for_previous();
    if (statistics && p.in.on) find_statistics(p, p.in, shared, num_nodes);
    if (count <= 0) return;

    for (int begin = 0; begin < p.in_width; begin += depth) {
        const int columns = min(depth, p.in_width - begin);
        __syncthreads();
        if (begin > 0) product.start(p.fragments, begin / 16, columns / 16, p.in_width / 16, chunks);
        pull(p, shared, first, count, begin / 4, columns / 4);
        __syncthreads();
        if (begin > 0) product.shrink(shared.shrunk);
        product.multiply(shared.tile);
    }
    product.each(shared.scales, p.scales, 0, [&](int row, int column, const float2& x) { two(shared.own_rows + row * stride + column) = x; });
    read_parameters(p, shared);
    __syncthreads();
    finish<false>(p, shared, first, count);
    if (statistics && p.out.on) {
        __syncthreads();
        add_statistics(p, shared, count, num_nodes);
    }
}
