// One layer of `molgcn::gcn_stack_backward`. With dZ the gradient of the layer's product and bias, and Â symmetric: G = Â dZ, dH = G W, and
// then through dropout, relu and norm of the layer before. dW = G^T H is left to gcn_layer_weights.cu, for all layers together.
//
// Sums over all atoms for biases and norms are formed where a gradient is made and finished by the next kernel, which with batch statistics
// needs them itself: there dZ is made from the output's gradient wherever it is pulled.
//
// Column sums of a layer with norm, relu and dropout: without norm 0: bias. Layer and batch norm 0: bias, 1: norm's bias, 2: norm's weight. Batch
// statistics 0: norm's bias, 1: norm's weight; a bias before them has no gradient. A layer without has 0: bias.
#include "gcn_layer_gradients.cuh"

// Numbers of each column in shared memory: 0 mean, 1 factor, 2 bias, 3 1 / deviation, 4 and 5 means of the gradient and along the norm's output
__device__ __forceinline__ void read_columns(const Activation& it, const Parameters& p, float* columns) {
    for (int column = threadIdx.x; column < width; column += threads) {
        float mean = 0.0f, deviation = 1.0f;
        if (statistics) mean = __ldg(it.moments + width + column), deviation = __ldg(it.moments + column);
        if (NORM == NORM_BATCH && column < HIDDEN) {
            mean = __ldg(it.mean + column);
            deviation = 1.0f / sqrtf(__ldg(it.variance + column) + p.eps);
        }
        columns[column] = mean;
        columns[width + column] = deviation * parameter(it.weight, column);
        columns[2 * width + column] = parameter(it.bias, column);
        columns[3 * width + column] = deviation;
    }
}

// Totals of the layer's column sums: gradients, by block 0, and with batch statistics their means for everyone
__device__ __forceinline__ void read_sums(const Parameters& p, const Shared& shared, int num_nodes) {
    const Activation& it = p.in;
    const bool waits = statistics && it.on;
    if (!waits && blockIdx.x != 0) return;
    const int parts = parts_of(num_nodes, p.atoms_per_part);
    for (int item = threadIdx.x; item < shares * quads; item += threads) {
        const int quad = item % quads, share = item / quads;
        float4 sum[kinds];
#pragma unroll
        for (int kind = 0; kind < kinds; kind++) sum[kind] = nothing();
#pragma unroll 6
        for (int i = share; i < parts; i += shares)
#pragma unroll
            for (int kind = 0; kind < kinds; kind++) add(sum[kind], load4_past_l1(it.sums + (i * kinds + kind) * width + 4 * quad));
#pragma unroll
        for (int kind = 0; kind < kinds; kind++) four(shared.tile + (kind * shares + share) * width + 4 * quad) = sum[kind];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < width; column += threads) {
        float sum[kinds] = {};
#pragma unroll
        for (int kind = 0; kind < kinds; kind++)
            for (int share = 0; share < shares; share++) sum[kind] += shared.tile[(kind * shares + share) * width + column];
        if (waits) {
            shared.columns[4 * width + column] = sum[0] / static_cast<float>(num_nodes);
            shared.columns[5 * width + column] = sum[kinds > 1] / static_cast<float>(num_nodes);
        }
        if (blockIdx.x != 0 || column >= HIDDEN) continue;
        it.grad_layer_bias[column] = waits ? 0.0f : sum[0];
        if (kinds > 1 && it.on) {
            it.grad_bias[column] = sum[kinds - 2];
            it.grad_weight[column] = sum[kinds - 1];
        }
    }
}

// Four columns of dZ, from the gradient of the layer's output; where no norm waits (the last layer's), that itself by the same instructions
struct PendingGradient {
    float4 mean = nothing(), factor = make_float4(1.0f, 1.0f, 1.0f, 1.0f), bias = factor, inverse = nothing(), level = nothing(), slope = nothing();
    float scale = 1.0f;  // of dropout
    const float *gradient, *raw = nullptr;
    const unsigned char* masks = nullptr;

    __device__ __forceinline__ PendingGradient(const Parameters& p, const Shared& shared, int quad) : gradient(p.gradient + 4 * quad) {
        if (!p.in.on) return;
        mean = shared.column4(0, quad), factor = shared.column4(1, quad), bias = shared.column4(2, quad);
        inverse = shared.column4(3, quad), level = shared.column4(4, quad), slope = shared.column4(5, quad);
        scale = p.dropout_scale;
        raw = p.in.raw + 4 * quad;
        if (DROPOUT) masks = p.in.masks + quad;
    }
    __device__ __forceinline__ float4 operator()(int node) const {
        const float4 d = load4(gradient + at_row(node)), x = raw != nullptr ? load4(raw + at_row(node)) : nothing();
        const uint32 mask = DROPOUT && masks != nullptr ? __ldg(masks + size_t(node) * quads) : 15u;
        float4 z;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float distance = at(x, e) - at(mean, e);
            const bool alive = fmaf(distance, at(factor, e), at(bias, e)) > 0.0f && (mask >> e & 1);
            const float dy = alive ? (DROPOUT ? at(d, e) * scale : at(d, e)) : 0.0f;
            at(z, e) = at(factor, e) * (dy - at(level, e) - distance * at(inverse, e) * at(slope, e));
        }
        return z;
    }
};

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

__device__ __forceinline__ void finish_row(const Parameters& p, const Shared& shared, int first, int count, int row, Row& given, Sums& sums) {
    const int lane = threadIdx.x % lanes, node = first + row;
    const bool there = row < count;  // all lanes of a warp go on together
    float4 d[turns];
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int quad = lane + lanes * i;
        d[i] = nothing();
        if (quad >= quads || !there) break;
        d[i] = p.grad_pooled != nullptr ? unpool(p, node, quad) : four(shared.own_rows + row * stride + 4 * quad);
        add(d[i], given.residual[i]);
        if (p.output != nullptr) four(p.output + at_row(node) + 4 * quad) = d[i];
    }
    if (p.out.on) through(d, sums, p, node, there, lane, shared, given);
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int quad = lane + lanes * i;
        if (quad >= quads || !there) break;
        if (p.next_gradient != nullptr) four(p.next_gradient + at_row(node) + 4 * quad) = d[i];
        if (!(statistics && p.out.on)) add(sums[0][i], d[i]);
    }
}

__device__ __forceinline__ void finish(const Parameters& p, const Shared& shared, int first, int count, int num_nodes, Row (&given)[early]) {
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    Sums sums = {};
#pragma unroll
    for (int i = 0; i < early; i++) finish_row(p, shared, first, count, team + i * teams, given[i], sums);
#pragma unroll 1
    for (int begin = early * teams; begin < count; begin += teams) {
        Row more;
        more.load(p, first + begin + team, begin + team < count, lane);
        finish_row(p, shared, first, count, begin + team, more, sums);
    }
    constexpr int together = kinds * teams * width <= 2 * rows * stride ? kinds : 1;  // that tile and own_rows have room for
    static_assert(together * teams * width <= 2 * rows * stride, "a kind's sums fit shared memory");
    float* to = tile_sums(p, kinds * width);
#pragma unroll
    for (int first_kind = 0; first_kind < kinds; first_kind += together) {
        __syncthreads();
#pragma unroll
        for (int kind = 0; kind < together; kind++)
#pragma unroll
            for (int i = 0; i < turns; i++) {
                const int quad = lane + lanes * i;
                if (quad < quads) four(shared.tile + (kind * teams + team) * width + 4 * quad) = sums[first_kind + kind][i];
            }
        __syncthreads();
        for (int item = threadIdx.x; item < together * width; item += threads) {
            float sum = 0.0f;
#pragma unroll(wide ? 4 : teams)
            for (int i = 0; i < teams; i++) sum += shared.tile[(item / width * teams + i) * width + item % width];
            to[first_kind * width + item] = sum;
        }
    }
    add_up(p, num_nodes, kinds * width, shared.flag, [&](const float* from, float* to, int atoms, int each) {
        for (int column = threadIdx.x; column < kinds * width; column += threads) {
            float sum = 0.0f;
#pragma unroll 8
            for (int i = 0; i < parts_of(atoms, each); i++) sum += load_past_l1(from + i * kinds * width + column);
            to[column] = sum;
        }
    });
}

// The first layer's: rows of num_features, written from where the product leaves them
__device__ __forceinline__ void input_gradient(const Parameters& p, const Shared& shared, int first, int count) {
    const int across = p.in_width / 16;
    for (int begin = 0; begin < across; begin += WARP_COLUMNS * COLUMN_TILES) {
        Product product;
        product.zero();
        product.start(p.fragments, 0, chunks, chunks, across, begin);
        product.multiply(shared.tile, !wide);
        product.each(shared, p.scales, begin, [&](int row, int column, const float2& d) {
            if (row >= count) return;
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (column + e < p.num_features) {
                    const float more = p.residual != nullptr ? __ldg(p.residual + at_row(first + row) + column + e) : 0.0f;
                    p.grad_x[size_t(first + row) * p.num_features + column + e] = (e == 0 ? d.x : d.y) + more;
                }
        });
    }
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
        if (!wide) load_rows(given, p, first, count);  // under way during the product, which leaves no registers for it where it is a loop
        product.zero();
        product.multiply(shared.tile);
        if (wide) load_rows(given, p, first, count);
        product.each(shared, p.scales, 0, [&](int row, int column, const float2& x) { two(shared.own_rows + row * stride + column) = x; });
    }
    if (count <= 0) return;
    if (is_start) load_rows(given, p, first, count);
    if (NORM != NORM_NONE && p.out.on) read_columns(p.out, p, shared.columns);
    __syncthreads();
    finish(p, shared, first, count, num_nodes, given);
}
