// One layer of `molgcn::message_network`: neighbours pulled, product, bias, norm, relu, dropout and residual in one launch.
//
// With batch statistics a layer ends with its norm's input and the sums for its statistics. The next layer's kernel applies norm, relu,
// dropout and residual to whatever it pulls, and stores its own atoms' results.
#include "gcn_layer_activation.cuh"

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

// Applies norm, relu, dropout and residual to the product's rows, with a few lanes for each row.
__device__ __forceinline__ void finish(const Parameters& p, const Shared& shared, int first, int count) {
    const int lane = threadIdx.x % lanes;
#pragma unroll 2
    for (int begin = 0; begin < count; begin += teams) {
        const int row = begin + threadIdx.x / lanes, node = first + row;
        const bool there = row < count;  // all lanes of a warp continue together
        float4 v[lane_quads];
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int quad = lane + lanes * i;
            v[i] = nothing();
            if (quad >= quads || !there) break;
            v[i] = four(shared.own_rows + row * stride + 4 * quad);
            add(v[i], shared.column4(0, quad));
        }
        if (p.out.on) activate(v, p, node, there, lane, shared.columns);
#pragma unroll
        for (int i = 0; i < lane_quads; i++) {
            const int quad = lane + lanes * i;
            if (quad >= quads || !there) break;
            if (statistics && p.out.on) {
                four(shared.own_rows + row * stride + 4 * quad) = v[i];
            } else {
                if (p.residual != nullptr) add(v[i], *reinterpret_cast<const float4*>(p.residual + at_row(node) + 4 * quad));
                four(p.output + at_row(node) + 4 * quad) = v[i];
            }
        }
    }
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
    for (int column = threadIdx.x; column < width; column += threads) {
        shared.columns[column] = parameter(p.bias, column);
        if ((NORM == NORM_LAYER || NORM == NORM_BATCH) && p.out.on) {
            float factor = parameter(p.out.weight, column);
            if (NORM == NORM_BATCH) {
                factor *= column < HIDDEN ? 1.0f / sqrtf(__ldg(p.out.variance + column) + p.eps) : 0.0f;
                shared.columns[3 * width + column] = parameter(p.out.mean, column);
            }
            shared.columns[width + column] = factor;
            shared.columns[2 * width + column] = parameter(p.out.bias, column);
        }
    }
    __syncthreads();
    finish(p, shared, first, count);
    if (statistics && p.out.on) {
        __syncthreads();
        add_statistics(p, shared, count, num_nodes);
    }
}
