// Gradients of all graph convolutions with batch norm in training.
//
// dZ is the gradient of a layer's linear part, Â is symmetric, and G = Â dZ. Then dH = G W. The norm of the layer before needs sums over
// all atoms of its output's gradient; its dZ is computed from them after the barrier. dW = G^T H is left to gcn_layer_weights.cu, for all
// layers together.
#include "gcn_chain_tile.cuh"

struct Columns {  // how a layer's norm maps the lane's two columns
    float2 mean, deviation, factor, bias;

    __device__ __forceinline__ void load(const Parameters& p, int layer, int column) {
        const float* kept = p.moments + size_t(layer) * 2 * width + column;
        deviation = __ldg(reinterpret_cast<const float2*>(kept)), mean = __ldg(reinterpret_cast<const float2*>(kept + width));
        factor = parameter2(p.layers[layer].norm_weight, column), bias = parameter2(p.layers[layer].norm_bias, column);
        factor.x *= deviation.x, factor.y *= deviation.y;
    }
    __device__ __forceinline__ void store(const Shared& shared, int column) const {
        two(shared.columns + column) = mean;
        two(shared.columns + width + column) = factor;
        two(shared.columns + 2 * width + column) = bias;
        two(shared.columns + 3 * width + column) = deviation;
    }
};

// Starts to copy a layer's norm inputs into `near`, for the block's atoms and their halo.
__device__ __forceinline__ void fetch_raw(const Parameters& p, const Shared& shared, const AtomRange& atoms, int layer) {
    if (layer >= p.num_norms) return;
    const int quad = threadIdx.x % quads, top = threadIdx.x / quads, halo_count = *shared.halo_count;
    const float* raw = p.raw + layer * plane(p) + 4 * quad;
    float* near = shared.near + top * stride + 4 * quad;
#pragma unroll
    for (int i = 0; i < items; i++)
        if (top + step * i < atoms.count) copy16(near + i * step * stride, raw + at_row(atoms.first + top + step * i), true);
#pragma unroll
    for (int i = 0; i < halo_items; i++) {
        const int slot = top + step * i;
        if (slot < halo_count) copy16(near + (rows + step * i) * stride, raw + at_row(shared.halo[slot]), true);
    }
}

// Returns the gradient that pooling gives to two columns of an atom.
__device__ __forceinline__ float2 unpool(const Parameters& p, int node, int column) {
    const int graph = __ldg(p.graph + node);
    const float scale = POOL == POOL_MEAN ? 1.0f / static_cast<float>(__ldg(p.ptr + graph + 1) - __ldg(p.ptr + graph)) : 1.0f;
    float2 d = parameter2(p.grad_pooled + size_t(graph) * HIDDEN, column);
    d.x *= scale, d.y *= scale;
    if (POOL == POOL_MAX) {
        const float2 largest = two(const_cast<float*>(p.largest) + at_row(graph) + column), ties = two(const_cast<float*>(p.ties) + at_row(graph) + column);
        const float2 x = two(p.features + (p.num_layers - 1) * plane(p) + at_row(node) + column);
        d.x = x.x == largest.x ? d.x / ties.x : 0.0f, d.y = x.y == largest.y ? d.y / ties.y : 0.0f;
    }
    return d;
}

__device__ __forceinline__ void through(float d, float raw, float mean, float factor, float bias, float deviation, bool kept, float scale, float& sum,
                                        float& sum_gx) {
    const bool alive = kept && normalised(raw, mean, factor, bias) > 0.0f;
    const float dy = through_relu(alive, d, DROPOUT ? scale : 1.0f);
    sum += dy, sum_gx += dy * ((raw - mean) * deviation);
}

// Writes the gradient of a layer's output: the product's result (in the last layer the gradient from pooling) plus the residual's part.
// Adds up the column sums: of the gradient through dropout and relu, and of that times the norm's output. Without a norm, the sums are of
// the gradient itself.
__device__ __forceinline__ void put_gradient(const Parameters& p, const Shared& shared, const AtomRange& atoms, const Product& product, const float2& scale,
                                             const Columns& columns, int layer) {
    const bool is_last = layer == p.num_layers - 1, on = layer < p.num_norms, adds = !is_last && adds_input(p, layer + 1);
    float* output = p.outputs + layer % 2 * plane(p);
    if (product.warp < chunks) {
        float2 d[TILES][2], sum = make_float2(0.0f, 0.0f), sum_gx = sum;
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = product.row(m, i);
                d[m][i] = make_float2(0.0f, 0.0f);
                if (row >= atoms.count) continue;
                float2& it = d[m][i];
                it = is_last ? unpool(p, atoms.first + row, product.column) : product.get(shared, scale, m, i);
                if (adds) {
                    const float2 more = two(shared.held + row * stride + product.column);
                    it.x += more.x, it.y += more.y;
                }
                if (on) {
                    const float2 raw = two(shared.near + row * stride + product.column);
                    const uint32 mask = DROPOUT ? *mask_of(p, atoms.first + row, product.column / 4, layer) >> product.column % 4 : 3u;
                    through(it.x, raw.x, columns.mean.x, columns.factor.x, columns.bias.x, columns.deviation.x, mask & 1, p.dropout_scale, sum.x, sum_gx.x);
                    through(it.y, raw.y, columns.mean.y, columns.factor.y, columns.bias.y, columns.deviation.y, mask & 2, p.dropout_scale, sum.y, sum_gx.y);
                } else {
                    sum.x += it.x, sum.y += it.y;
                }
            }
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = product.row(m, i);
                if (row >= atoms.count) continue;
                two(shared.held + row * stride + product.column) = d[m][i];
                two(output + at_row(atoms.first + row) + product.column) = d[m][i];
            }
        sum = over_atoms(sum), sum_gx = over_atoms(sum_gx);
        if (product.t < 2) offer(shared, product.column, product.t, product.t == 0 ? sum : sum_gx);
        if (on && product.t == 0) columns.store(shared, product.column);
    }
    take_offers(shared, p.num_layers - 1 - layer, [&](int column, const float2(&offers)[CLUSTER]) {
        float sum = 0.0f, sum_gx = 0.0f;
#pragma unroll
        for (int i = 0; i < CLUSTER; i++) sum += offers[i].x, sum_gx += offers[i].y;
        float* to = sums_of(p, layer) + blockIdx.x / CLUSTER * 2 * width + column;
        to[0] = sum, to[width] = sum_gx;
    });
}

// Computes the means of a layer's column sums. The first cluster writes them as gradients.
__device__ __forceinline__ void find_means(const Parameters& p, const Shared& shared, const AtomRange& atoms, int layer) {
    const int half = threadIdx.x / 16 % 2, column = own_column();
    if (column >= width) return;
    float sum = 0.0f, sum_gx = 0.0f;
    add_parts(p, atoms, layer, column, half, [&](float first, float second, float) { sum += first, sum_gx += second; });
    sum += shuffle_xor(sum, 16), sum_gx += shuffle_xor(sum_gx, 16);
    send_to_cluster(shared, 4, column, half, sum / static_cast<float>(atoms.num_nodes));
    send_to_cluster(shared, 5, column, half, sum_gx / static_cast<float>(atoms.num_nodes));
    if (blockIdx.x >= CLUSTER || half == 0 || column >= HIDDEN) return;
    const bool on = layer < p.num_norms;
    p.layers[layer].grad_bias[column] = on ? 0.0f : sum;
    if (on) p.layers[layer].grad_norm_bias[column] = sum, p.layers[layer].grad_norm_weight[column] = sum_gx;
}

// Returns four columns of an atom's dZ, from the gradient of the layer's output and the norm's input.
__device__ __forceinline__ float4 before_norm(const Parameters& p, const Shared& shared, const float4& d, const float4& raw, int quad, uint32 mask) {
    const float4 mean = shared.column4(0, quad), factor = shared.column4(1, quad), bias = shared.column4(2, quad);
    const float4 inverse = shared.column4(3, quad), mean_g = shared.column4(4, quad), mean_gx = shared.column4(5, quad);
    float4 z;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const Column it = {at(mean, e), at(inverse, e), at(factor, e), at(bias, e)};
        const float dy = through_relu(mask >> e & 1 && it(at(raw, e)) > 0.0f, at(d, e), kept_scale(p));
        at(z, e) = it.through_statistics(at(raw, e), dy, at(mean_g, e), at(mean_gx, e));
    }
    return z;
}

// Writes dZ of the block's atoms and their halo into `near`.
__device__ __forceinline__ void make_gradients(const Parameters& p, const Shared& shared, const AtomRange& atoms, int layer) {
    const bool on = layer < p.num_norms;
    const int quad = threadIdx.x % quads, top = threadIdx.x / quads, halo_count = *shared.halo_count;
    const float* output = p.outputs + layer % 2 * plane(p) + 4 * quad;
    float* own = shared.near + top * stride + 4 * quad;
    const float* held = shared.held + top * stride + 4 * quad;
    float4 z[items], d[items], halo[halo_items];
    uint32 mask[items];
#pragma unroll
    for (int i = 0; i < items; i++) {
        const int row = top + step * i;
        mask[i] = DROPOUT && on && row < atoms.count ? *mask_of(p, atoms.first + row, quad, layer) : 15u;
        if (row < rows) d[i] = *reinterpret_cast<const float4*>(held + i * step * stride), z[i] = four(own + i * step * stride);
    }
    wait_for_all(p, p.num_layers - layer);
#pragma unroll
    for (int i = 0; i < halo_items; i++) {
        const int slot = top + step * i;
        halo[i] = slot < halo_count ? load4_past_l1(output + at_row(shared.halo[slot])) : nothing();
    }
    find_means(p, shared, atoms, layer);
    wait_for_columns(shared, 2, p.num_layers - 1 - layer);
#pragma unroll
    for (int i = 0; i < items; i++) {
        if (top + step * i >= atoms.count) break;
        z[i] = on ? before_norm(p, shared, d[i], z[i], quad, mask[i]) : d[i];
    }
#pragma unroll
    for (int i = 0; i < items; i++) {
        if (top + step * i >= atoms.count) break;
        four(own + i * step * stride) = z[i];
    }
#pragma unroll
    for (int i = 0; i < halo_items; i++) {
        const int slot = top + step * i;
        if (slot >= halo_count) break;
        float4& value = four(own + (rows + step * i) * stride);
        value = on ? before_norm(p, shared, halo[i], value, quad, DROPOUT ? *mask_of(p, shared.halo[slot], quad, layer) : 15u) : halo[i];
    }
}

__device__ __forceinline__ void pull(const Parameters& p, const Shared& shared, const AtomRange& atoms, int layer) {
    const bool on = layer < p.num_norms;
    const float* raw = p.raw + layer * plane(p);
    const float* output = p.outputs + layer % 2 * plane(p);
    float* gradients = p.gradients + layer * plane(p);
    const auto far = [&](int node, int quad) {
        const float4 d = load4_past_l1(output + at_row(node) + 4 * quad);
        return on ? before_norm(p, shared, d, load4(raw + at_row(node) + 4 * quad), quad, DROPOUT ? *mask_of(p, node, quad, layer) : 15u) : d;
    };
    gather(p, shared, atoms, quads, far, [&](int row, int quad, const float4& sum) { four(gradients + at_row(atoms.first + row) + 4 * quad) = sum; });
}

__device__ __forceinline__ void input_gradient(const Parameters& p, const Shared& shared, const AtomRange& atoms, const Product& product, const float2& scale) {
    if (product.warp >= p.in_width / 16) return;
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = product.row(m, i);
            if (row >= atoms.count) continue;
            const float2 d = product.get(shared, scale, m, i);
            for (int e = 0; e < 2; e++)
                if (product.column + e < p.num_features) {
                    const float more = p.first_residual ? shared.held[row * stride + product.column + e] : 0.0f;
                    p.grad_x[size_t(atoms.first + row) * p.num_features + product.column + e] = (e == 0 ? d.x : d.y) + more;
                }
        }
}

extern "C" __global__ void __launch_bounds__(threads, 1) gcn_chain_backward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    const AtomRange atoms(p);
    if (p.grad_x != nullptr) {
        const size_t from = size_t(max(atoms.first, atoms.num_nodes)) * p.num_features, to = size_t(min(atoms.first + rows, p.num_nodes)) * p.num_features;
        for (size_t i = from + threadIdx.x; i < to; i += threads) p.grad_x[i] = 0.0f;
    }
    start(p, shared, atoms);
    Product product;
    Columns columns = {};
    float2 scale = {};
    fetch_raw(p, shared, atoms, p.num_layers - 1);
    if (product.warp < chunks && p.num_norms == p.num_layers) columns.load(p, p.num_layers - 1, product.column);
    wait_for_copies();
    __syncthreads();
#pragma unroll 1
    for (int layer = p.num_layers - 1; layer >= 0; layer--) {
        put_gradient(p, shared, atoms, product, scale, columns, layer);
        arrive(p);
        const bool goes_on = layer > 0 || p.grad_x != nullptr;
        const int across = layer > 0 ? chunks : p.in_width / 16;
        if (goes_on) fetch_weight(p, shared, layer, across, chunks);
        make_gradients(p, shared, atoms, layer);
        __syncthreads();
        pull(p, shared, atoms, layer);
        if (!goes_on) break;
        if (product.warp < across) {
            scale = *reinterpret_cast<const float2*>(p.scales + layer * width + product.column);
            if (layer > 0) columns.load(p, layer - 1, product.column);
        }
        wait_for_weight(shared, p.num_layers - 1 - layer);
        __syncthreads();
        if (layer > 0) fetch_raw(p, shared, atoms, layer - 1);
        product.multiply(shared, chunks, across);
        if (layer == 0) {
            input_gradient(p, shared, atoms, product, scale);
            break;
        }
        wait_for_copies();
        __syncthreads();
    }
}
