// One layer of `molgcn::message_network` with batch statistics, like gcn_layer_forward.cu, but with many tiles for each block
// (gcn_stream.cuh).
#define ROWS_BESIDE 1
#include "gcn_stream.cuh"

// Applies norm, relu, dropout and residual to the rows that were copied. Where no norm waits the rows are left as they are.
__device__ __forceinline__ void activate_rows(const Parameters& p, const Stream& shared, int first, int count) {
    if (!p.in.on) return;
    const int quad = threadIdx.x % quads;
    const Pending pending(p, shared, quad);
    const auto activate = [&](int node, float* row, const float* beside) {
        float4& x = four(row + 4 * quad);
        x = pending.activated(node, x);
        if (p.input != nullptr) add(x, *reinterpret_cast<const float4*>(beside + 4 * quad));
        return x;
    };
    each_row(count, [&](int row) {
        four(p.kept + at_row(first + row) + 4 * quad) = activate(first + row, shared.own_rows + row * stride, shared.beside + row * stride);
    });
    each_halo_row(shared, [&](int index) { activate(shared.halo[index], shared.halo_row(index), shared.halo_beside + index * stride); });
}

// Writes what the next layer waits for: the norm's input and its sums. In the last layer without a norm, writes the output.
__device__ __forceinline__ void finish(const Parameters& p, const Stream& shared, int first, int count, bool is_first) {
    const int quad = threadIdx.x % quads, share = threadIdx.x / quads;
    const float4 bias = four(shared.after + 4 * quad);
    Distances all[4] = {};
    float4 origin = four((is_first ? shared.tile : shared.after + width) + 4 * quad);
    if (is_first) {
        add(origin, bias);
        if (share == 0) four(shared.after + width + 4 * quad) = origin;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        all[e].origin = at(origin, e);
        if (!is_first && share < shares)
            all[e].sum = shared.sums[share * width + 4 * quad + e], all[e].squares = shared.sums[(shares + share) * width + 4 * quad + e];
    }
    each_row(count, [&](int row) {
        const int node = first + row;
        float4 v = four(shared.tile + row * stride + 4 * quad);
        add(v, bias);
        if (p.out.on) {
            four(p.out.raw + at_row(node) + 4 * quad) = v;
            if (DROPOUT) p.out.masks[size_t(node) * quads + quad] = static_cast<unsigned char>(drawn(p, node, quad, p.out.layer));
#pragma unroll
            for (int e = 0; e < 4; e++) all[e].add(at(v, e));
        } else {
            if (p.residual != nullptr) add(v, load4(p.residual + at_row(node) + 4 * quad));
            four(p.output + at_row(node) + 4 * quad) = v;
        }
    });
    if (share < shares) leave_distances(shared.sums, all, quad, share);
}

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_stream_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Stream shared(memory);
    const int num_nodes = num_atoms(p);
    const Span span(num_nodes);
    if (blockIdx.x > 0 && span.begin >= span.end) return;
    const auto copy = [&](int first) {
        const int count = span.count(first);
        copy_bonds(p, shared, first + rows, span.count(first + rows));
        if (count <= 0) return;
        copy_rows(shared.own_rows, p.in.on ? p.in.raw : p.input, first, count, p.in_width / 4);
        if (p.in.on && p.input != nullptr) copy_rows(shared.beside, p.input, first, count, quads);
    };
    const auto copy_the_halo = [&] {
        copy_halo(shared, shared.halo_row(0), p.in.on ? p.in.raw : p.input, p.in_width / 4);
        if (p.in.on && p.input != nullptr) copy_halo(shared, shared.halo_beside, p.input, quads);
    };
    for (int quad = threadIdx.x; quad < stride / 4; quad += threads) four(shared.own_rows + rows * stride + 4 * quad) = nothing();
    copy_bonds(p, shared, span.begin, span.count(span.begin));
    wait_for_previous();
    wait_for_copies();
    __syncthreads();
    find_halo(shared, span.begin, span.count(span.begin));
    copy(span.begin);
    __syncthreads();
    copy_the_halo();
    if (p.in.on) find_statistics(p, p.in, shared, num_nodes);
    if (span.begin >= span.end) return;
    for (int column = threadIdx.x; column < width; column += threads) shared.after[column] = parameter(p.bias, column);
#pragma unroll 1
    for (int first = span.begin; first < span.end; first += rows) {
        const int count = span.count(first);
        wait_for_copies();
        __syncthreads();
        activate_rows(p, shared, first, count);
        __syncthreads();
        pull_neighbours(
            p, shared, first, count, 0, p.in_width / 4, [&](int quad) { return Pending(p, shared, quad); }, [](int, int, const float4&) {});
        __syncthreads();
        Product product;
        product.start(p.fragments, 0, p.in_width / 16, p.in_width / 16, chunks);
        find_halo(shared, first + rows, span.count(first + rows));
        copy(first + rows);
        product.zero();
        product.multiply(shared.tile);
        __syncthreads();
        product.each(shared.scales, p.scales, 0, [&](int row, int column, const float2& x) { two(shared.tile + row * stride + column) = x; });
        copy_the_halo();
        __syncthreads();
        finish(p, shared, first, count, first == span.begin);
    }
    if (p.out.on) leave_statistics(p, shared.sums, shared.after + width, shared.flag, span.end - span.begin, num_nodes, span.each);
}
