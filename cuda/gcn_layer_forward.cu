// One layer of `molgcn::gcn_stack`: neighbours pulled, product, bias, norm, relu, dropout and residual in one launch.
//
// With batch statistics a layer ends at its norm's input and the sums for its statistics; the next layer's kernel applies norm, relu, dropout
// and residual to whatever it pulls, and keeps its own atoms' results.
#include "gcn_layer_activation.cuh"

__device__ __forceinline__ void pull(const Parameters& p, const Shared& shared, int first, int count, int first_quad, int count_quads) {
    const auto nobody = [](int, int, const float4&, const float4&) {};
    const auto complete = [&p](int quad) {
        const float* column = p.input + 4 * quad;
        return [&p, column](int node) { return load4(column + size_t(node) * p.in_width); };
    };
    if constexpr (statistics) {
        if (p.in.on) {
            const auto waiting = [&](int quad) {
                const Columns column = {shared.column4(0, quad), shared.column4(1, quad), shared.column4(2, quad)};
                return [&p, column, quad](int node) { return pending(p, column, node, quad); };
            };
            const auto keep = [&p](int node, int quad, const float4& x, const float4&) { four(p.kept + at_row(node) + 4 * quad) = x; };
            gather(p, shared, first, count, first_quad, count_quads, true, waiting, keep);
            return;
        }
    }
    gather(p, shared, first, count, first_quad, count_quads, false, complete, nobody);
}

// Norm, relu, dropout and residual of the rows of the tile, a warp a row
__device__ __forceinline__ void finish(const Parameters& p, const Shared& shared, int first, int count) {
    const int lane = threadIdx.x % 32;
    for (int row = threadIdx.x / 32; row < count; row += warps) {
        const int node = first + row;
        float4 v[turns];
#pragma unroll
        for (int i = 0; i < turns; i++) {
            const int quad = lane + 32 * i;
            v[i] = nothing();
            if (quad >= quads) break;
            v[i] = four(shared.tile + row * stride + 4 * quad);
            add(v[i], shared.column4(0, quad));
        }
        if (p.out.on) activate(v, p, node, lane, shared.columns);
#pragma unroll
        for (int i = 0; i < turns; i++) {
            const int quad = lane + 32 * i;
            if (quad >= quads) break;
            if (statistics && p.out.on) {
                four(shared.tile + row * stride + 4 * quad) = v[i];
            } else {
                if (p.residual != nullptr) add(v[i], *reinterpret_cast<const float4*>(p.residual + at_row(node) + 4 * quad));
                four(p.output + at_row(node) + 4 * quad) = v[i];
            }
        }
    }
}

// Mean and squared distances of the tile's columns, then of its group's if all others of the group are there
__device__ __forceinline__ void add_statistics(const Parameters& p, const Shared& shared, int count, int num_nodes) {
    for (int item = threadIdx.x; item < shares * width; item += threads) {
        const int column = item % width;
        Distances all = {shared.tile[column]};
#pragma unroll 8
        for (int row = item / width; row < count; row += shares) all.add(shared.tile[row * stride + column]);
        shared.work[item] = all.sum, shared.work[shares * width + item] = all.squares;
    }
    __syncthreads();
    float* tiles = p.tiles_per_group == 1 ? p.out.groups : p.partial;
    for (int column = threadIdx.x; column < width; column += threads) {
        Distances all = {shared.tile[column]};
        for (int share = 0; share < shares; share++)
            all.sum += shared.work[share * width + column], all.squares += shared.work[(shares + share) * width + column];
        const Moments moments = all.moments(count);
        float* to = tiles + size_t(blockIdx.x) * 2 * width + column;
        to[0] = moments.mean, to[width] = moments.squares;
    }
    if (p.tiles_per_group == 1 || !last_of_group(p, (num_nodes + rows - 1) / rows, shared.flag)) return;
    const int group = blockIdx.x / p.tiles_per_group, begin = group * p.tiles_per_group;
    for (int column = threadIdx.x; column < width; column += threads) {
        const int atoms = min(num_nodes, (begin + p.tiles_per_group) * rows) - begin * rows;
        const float* from = p.partial + size_t(begin) * 2 * width + column;
        Distances all = {load_past_l1(from)};
        add_parts(all, from, atoms, rows, 0, 1);
        const Moments moments = all.moments(atoms);
        float* to = p.out.groups + size_t(group) * 2 * width + column;
        to[0] = moments.mean, to[width] = moments.squares;
    }
}

extern "C" __global__ void __launch_bounds__(threads) gcn_layer_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    const int num_nodes = num_atoms(p), first = blockIdx.x * rows, count = min(rows, num_nodes - first);
    if (blockIdx.x > 0 && count <= 0) return;
    Product product;
    product.zero();
    product.start(p.fragments, min(depth, p.in_width) / 16, chunks);
    read_bonds(p, shared, first, count);
    wait_for_previous();
    if (statistics && p.in.on) find_statistics(p, p.in, shared, num_nodes);
    if (count <= 0) return;

    for (int begin = 0; begin < p.in_width; begin += depth) {
        const int columns = min(depth, p.in_width - begin);
        __syncthreads();
        if (begin > 0) product.start(p.fragments + size_t(begin) * width, columns / 16, chunks);
        pull(p, shared, first, count, begin / 4, columns / 4);
        __syncthreads();
        product.multiply(shared.tile);
    }
    __syncthreads();
    product.each(0, [&](int row, int column, const float4& x) { four(shared.tile + row * stride + column) = x; });
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
