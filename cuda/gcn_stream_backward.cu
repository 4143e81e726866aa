// One layer of `molgcn::message_network_backward` with batch statistics, like gcn_layer_backward.cu, but with many tiles for each block
// (gcn_stream.cuh).
#define ROWS_BESIDE 2  // the residual takes a tile's gradient when the next one's is on its way
#include "gcn_stream.cuh"

// Computes the gradient of the layer's input: that of the product plus the residual's, which is the gradient of the layer's output. Takes
// it through dropout, relu and norm of the layer before, for the sums.
__device__ __forceinline__ void finish(const Parameters& p, const Stream& shared, const float* gradient, int first, int count, float4 (&sum)[kinds]) {
    constexpr int together = thread_rows < 8 ? thread_rows : 8;  // rows whose loads are under way together
    const int quad = threadIdx.x % quads, share = threadIdx.x / quads;
    const auto number = [&](int which) { return four(shared.after + which * width + 4 * quad); };
    const float4 mean = number(0), factor = number(1), bias = number(2), inverse = number(3);
    float4 more[kinds] = {};
#pragma unroll 1
    for (int top = share; share < shares && top < count; top += together * shares) {
        float4 raw[together];
        uint32 mask[together];
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int node = first + min(top + i * shares, count - 1);
            raw[i] = p.out.on ? load4(p.out.raw + at_row(node) + 4 * quad) : nothing();
            mask[i] = DROPOUT && p.out.on ? __ldg(p.out.masks + size_t(node) * quads + quad) : 15u;
        }
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int row = top + i * shares;
            if (row >= count) break;
            float4 d = p.grad_pooled != nullptr ? unpool(p, first + row, quad) : four(shared.tile + row * stride + 4 * quad);
            if (p.residual != nullptr) add(d, *reinterpret_cast<const float4*>(gradient + row * stride + 4 * quad));
            four(p.output + at_row(first + row) + 4 * quad) = d;
            if (!p.out.on) {
                add(more[0], d);
                continue;
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = at(raw[i], e);
                const bool alive = (mask[i] >> e & 1) && normalised(x, at(mean, e), at(factor, e), at(bias, e)) > 0.0f;
                const float g = through_relu(alive, at(d, e), kept_scale(p));
                at(more[0], e) += g;
                at(more[1], e) += g * ((x - at(mean, e)) * at(inverse, e));
            }
        }
    }
#pragma unroll
    for (int kind = 0; kind < kinds; kind++) add(sum[kind], more[kind]);
}

__device__ __forceinline__ void leave_sums(const Parameters& p, const Stream& shared, const float4 (&sum)[kinds], int num_nodes, int each) {
    const int quad = threadIdx.x % quads, share = threadIdx.x / quads;
    __syncthreads();
#pragma unroll
    for (int kind = 0; kind < kinds; kind++)
        if (share < shares) four(shared.tile + (kind * shares + share) * width + 4 * quad) = sum[kind];
    __syncthreads();
    float* to = tile_sums(p, kinds * width);
    for (int item = threadIdx.x; item < kinds * width; item += threads) {
        float total = 0.0f;
        for (int i = 0; i < shares; i++) total += shared.tile[(item / width * shares + i) * width + item % width];
        to[item] = total;
    }
    add_up_gradients(p, shared, num_nodes, each);
}

// Computes dZ of the rows that were copied.
__device__ __forceinline__ void differentiate_rows(const Parameters& p, const Stream& shared, const float* gradient, int first, int count) {
    const int quad = threadIdx.x % quads;
    const PendingGradient pending(p, shared, quad);
    const auto differentiate = [&](int node, float* row, const float* d) {
        float4& x = four(row + 4 * quad);
        x = pending.of(node, *reinterpret_cast<const float4*>(d + 4 * quad), p.in.on ? x : nothing());
    };
    each_row(count, [&](int row) { differentiate(first + row, shared.own_rows + row * stride, gradient + row * stride); });
    each_halo_row(shared, [&](int index) { differentiate(shared.halo[index], shared.halo_row(index), shared.halo_beside + index * stride); });
    if (p.in.on) return;
    each_row(rows, [&](int row) {  // beyond the last atom nothing was copied there
        if (row >= count) four(shared.own_rows + row * stride + 4 * quad) = nothing();
    });
}

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) gcn_stream_backward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Stream shared(memory);
    const int num_nodes = num_atoms(p);
    const Span span(num_nodes);
    if (INPUT_GRADIENT && p.grad_x != nullptr) {  // in the first layer's launch
        const size_t beyond = size_t(p.num_nodes) * p.num_features, step = size_t(gridDim.x) * threads;
        for (size_t i = size_t(num_nodes) * p.num_features + blockIdx.x * threads + threadIdx.x; i < beyond; i += step) p.grad_x[i] = 0.0f;
    }
    if (blockIdx.x > 0 && span.begin >= span.end) return;
    const bool is_start = p.grad_pooled != nullptr;
    int current = 0;
    const auto gradient = [&](int current) { return shared.beside + current * rows * stride; };
    const auto copy = [&](int first, int current) {
        const int count = span.count(first);
        copy_bonds(p, shared, first + rows, span.count(first + rows));
        if (count <= 0) return;
        copy_rows(gradient(current), p.gradient, first, count, quads);
        if (p.in.on) copy_rows(shared.own_rows, p.in.raw, first, count, quads);
        const char* later = reinterpret_cast<const char*>(p.out.raw + at_row(first));  // what finish reads, as far as the L2 cache
        for (int at = 128 * threadIdx.x; p.out.on && p.in.layer > 0 && at < 4 * width * count; at += 128 * threads) prefetch(later + at);
    };
    const auto copy_the_halo = [&] {
        copy_halo(shared, shared.halo_beside, p.gradient, quads);
        if (p.in.on) copy_halo(shared, shared.halo_row(0), p.in.raw, quads);
    };
    wait_for_previous();
    if (p.out.on) read_columns(p.out, p, shared.after);
    if (!is_start) {
        for (int quad = threadIdx.x; quad < stride / 4; quad += threads) four(shared.own_rows + rows * stride + 4 * quad) = nothing();
        copy_bonds(p, shared, span.begin, span.count(span.begin));
        wait_for_copies();
        __syncthreads();
        find_halo(shared, span.begin, span.count(span.begin));
        copy(span.begin, current);
        __syncthreads();
        copy_the_halo();
        if (p.in.on) read_columns(p.in, p, shared.columns);
        read_sums(p, shared, num_nodes);
    }
    if (span.begin >= span.end) return;
    float4 sum[kinds] = {};
#pragma unroll 1
    for (int first = span.begin; first < span.end; first += rows, current ^= 1) {
        const int count = span.count(first);
        if (is_start) {
            __syncthreads();
            finish(p, shared, nullptr, first, count, sum);
            continue;
        }
        wait_for_copies();
        __syncthreads();
        differentiate_rows(p, shared, gradient(current), first, count);
        __syncthreads();
        pull_neighbours(
            p, shared, first, count, 0, quads, [&](int quad) { return PendingGradient(p, shared, quad); },
            [&p](int node, int quad, const float4& sum) { four(p.kept + at_row(node) + 4 * quad) = sum; });
        __syncthreads();
        Product product;
        if (p.in.layer > 0) product.start(p.fragments, 0, chunks, chunks, chunks);
        find_halo(shared, first + rows, span.count(first + rows));
        copy(first + rows, current ^ 1);
        if (p.in.layer == 0) {
            if (INPUT_GRADIENT) input_gradient(p, shared, first, count);
            __syncthreads();
            copy_the_halo();
            continue;
        }
        product.zero();
        product.multiply(shared.tile);
        __syncthreads();
        product.each(shared.scales, p.scales, 0, [&](int row, int column, const float2& x) { two(shared.tile + row * stride + column) = x; });
        copy_the_halo();
        __syncthreads();
        finish(p, shared, gradient(current), first, count, sum);
    }
    if (p.in.layer > 0 || is_start) leave_sums(p, shared, sum, num_nodes, span.each);
}
