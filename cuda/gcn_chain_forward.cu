// All graph convolutions of `molgcn::layer_network` with batch norm in training.
//
// A layer ends with its norm's input and the sums for its statistics. The next layer begins with norm, relu, dropout and residual.
#include "gcn_chain_tile.cuh"

// Returns four columns of an atom's input of layer + 1, from the norm's input in this layer and the residual's part.
__device__ __forceinline__ float4 activated(const Parameters& p, const Shared& shared, const float4& raw, const float4& input, int layer, int quad,
                                            uint32 mask) {
    const float4 mean = shared.column4(0, quad), factor = shared.column4(1, quad), bias = shared.column4(2, quad);
    float4 y;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const float value = relu(normalised(at(raw, e), at(mean, e), at(factor, e), at(bias, e)));
        at(y, e) = DROPOUT ? dropped(mask >> e & 1, value, p.dropout_scale) : value;
    }
    if (adds_input(p, layer)) add(y, input);
    return y;
}

struct Norm {  // of a thread's column; loaded while the block waits for the others
    float weight, bias, mean, variance;

    __device__ __forceinline__ Norm(const Layer& it, int column) : weight(parameter(it.norm_weight, column)), bias(parameter(it.norm_bias, column)) {
        if (blockIdx.x < CLUSTER) mean = parameter(it.mean, column), variance = parameter(it.variance, column);
    }
};

// Computes a layer's statistics from the clusters' sums. The first cluster stores them, from the biased variance, and updates the running
// ones.
__device__ __forceinline__ void find_statistics(const Parameters& p, const Shared& shared, const AtomRange& atoms, int layer, int column, const Norm& norm) {
    if (column >= width) return;
    const int half = threadIdx.x / 16 % 2;
    Distances all = {atoms.num_nodes > 0 ? load_past_l1(sums_of(p, layer) + column) : 0.0f};
    add_parts(p, atoms, layer, column, half, [&](float mean, float squares, float count) { all.add(mean, squares, count); });
    all.sum += shuffle_xor(all.sum, 16), all.squares += shuffle_xor(all.squares, 16);
    const Moments moments = all.moments(atoms.num_nodes);
    const float variance = moments.squares / static_cast<float>(max(atoms.num_nodes, 1)), deviation = 1.0f / sqrtf(variance + p.eps);
    send_to_cluster(shared, 0, column, half, moments.mean);
    send_to_cluster(shared, 1, column, half, deviation * norm.weight);
    send_to_cluster(shared, 2, column, half, norm.bias);
    if (blockIdx.x >= CLUSTER || half == 0) return;
    float* kept = p.moments + size_t(layer) * 2 * width + column;
    kept[0] = deviation, kept[width] = moments.mean;
    if (column >= HIDDEN) return;
    const Running now = Running{norm.mean, norm.variance}.after(moments, static_cast<float>(atoms.num_nodes), p.momentum);
    p.new_mean[layer * HIDDEN + column] = now.mean, p.new_variance[layer * HIDDEN + column] = now.variance;
}

// Writes the next layer's input of the block's atoms and their halo into `near`.
__device__ __forceinline__ void activate(const Parameters& p, const Shared& shared, const AtomRange& atoms, int layer, uint32 masks) {
    const int quad = threadIdx.x % quads, top = threadIdx.x / quads, halo_count = *shared.halo_count;
    const int column = own_column();
    const Norm norm(p.layers[layer], column);
    float* own = shared.near + top * stride + 4 * quad;
    const float* held = shared.held + top * stride + 4 * quad;
    float4 x[items], input[items], halo[halo_items];
#pragma unroll
    for (int i = 0; i < items; i++)
        if (top + step * i < rows) x[i] = *reinterpret_cast<const float4*>(held + i * step * stride), input[i] = four(own + i * step * stride);
    wait_for_all(p, layer + 1);
    const float* raw = p.raw + layer * plane(p) + 4 * quad;
#pragma unroll
    for (int i = 0; i < halo_items; i++) {
        const int slot = top + step * i;
        halo[i] = slot < halo_count ? load4_past_l1(raw + at_row(shared.halo[slot])) : nothing();
    }
    find_statistics(p, shared, atoms, layer, column, norm);
    wait_for_columns(shared, 3, layer);
    float* features = p.features + layer * plane(p) + at_row(atoms.first + top) + 4 * quad;
#pragma unroll
    for (int i = 0; i < items; i++) {
        if (top + step * i >= atoms.count) break;
        x[i] = activated(p, shared, x[i], input[i], layer, quad, masks >> 4 * i);
    }
#pragma unroll
    for (int i = 0; i < items; i++) {
        if (top + step * i >= atoms.count) break;
        four(own + i * step * stride) = x[i];
        four(features + i * step * width) = x[i];
    }
#pragma unroll
    for (int i = 0; i < halo_items; i++) {
        const int slot = top + step * i;
        if (slot >= halo_count) break;
        float4& value = four(shared.near + (rows + slot) * stride + 4 * quad);
        value = activated(p, shared, halo[i], value, layer, quad, DROPOUT ? drawn(p, shared.halo[slot], quad, layer) : 15u);
    }
}

__device__ __forceinline__ void read_input(const Parameters& p, const Shared& shared, const AtomRange& atoms) {
    const int in_quads = p.in_width / 4;
    for (int item = threadIdx.x; item < (rows + *shared.halo_count) * in_quads; item += threads) {
        const int row = item / in_quads, quad = item % in_quads;
        if (row >= atoms.count && row < rows) continue;
        const int node = row < rows ? atoms.first + row : shared.halo[row - rows];
        four(shared.near + row * stride + 4 * quad) = load4(p.x + size_t(node) * p.in_width + 4 * quad);
    }
}

__device__ __forceinline__ void pull(const Parameters& p, const Shared& shared, const AtomRange& atoms, int layer) {
    const auto nobody = [](int, int, const float4&) {};
    if (layer == 0) {
        gather(p, shared, atoms, p.in_width / 4, [&](int node, int quad) { return load4(p.x + size_t(node) * p.in_width + 4 * quad); }, nobody);
        return;
    }
    const float* raw = p.raw + (layer - 1) * plane(p);
    const float* input = layer > 1 ? p.features + (layer - 2) * plane(p) : p.x;
    const auto far = [&](int node, int quad) {
        const uint32 mask = DROPOUT ? drawn(p, node, quad, layer - 1) : 15u;
        const float4 more = adds_input(p, layer - 1) ? load4_past_l1(input + at_row(node) + 4 * quad) : nothing();
        return activated(p, shared, load4_past_l1(raw + at_row(node) + 4 * quad), more, layer - 1, quad, mask);
    };
    gather(p, shared, atoms, quads, far, nobody);
}

// Writes the output of the last layer where nothing follows its product.
__device__ __forceinline__ void put_out(const Parameters& p, const Shared& shared, const AtomRange& atoms, const Product& product, const float2& scale,
                                        const float2& bias) {
    const int layer = p.num_layers - 1;
    if (product.warp >= chunks) return;
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int row = product.row(m, i);
            if (row >= atoms.count) continue;
            float2 v = product.get(shared, scale, m, i);
            v.x += bias.x, v.y += bias.y;
            if (adds_input(p, layer)) {
                const float2 more = two(shared.near + row * stride + product.column);
                v.x += more.x, v.y += more.y;
            }
            two(p.features + layer * plane(p) + at_row(atoms.first + row) + product.column) = v;
        }
}

// Writes the norm's input, and the block's mean and squared distances of every column. Merges a slice of them over the cluster's blocks.
__device__ __forceinline__ void put_raw(const Parameters& p, const Shared& shared, const AtomRange& atoms, const Product& product, const float2& scale,
                                        const float2& bias, int layer) {
    float2 v[TILES][2];
    if (product.warp < chunks) {
        float2 mean = make_float2(0.0f, 0.0f), squares = mean;
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                v[m][i] = product.get(shared, scale, m, i);
                v[m][i].x += bias.x, v[m][i].y += bias.y;
                if (product.row(m, i) < atoms.count) mean.x += v[m][i].x, mean.y += v[m][i].y;
            }
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = product.row(m, i);
                if (row >= atoms.count) continue;
                two(shared.held + row * stride + product.column) = v[m][i];
                two(p.raw + layer * plane(p) + at_row(atoms.first + row) + product.column) = v[m][i];
            }
        mean = over_atoms(mean);
        const float share = 1.0f / static_cast<float>(max(atoms.count, 1));
        mean.x *= share, mean.y *= share;
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (product.row(m, i) < atoms.count) {
                    const float x = v[m][i].x - mean.x, y = v[m][i].y - mean.y;
                    squares.x = fmaf(x, x, squares.x), squares.y = fmaf(y, y, squares.y);
                }
        squares = over_atoms(squares);
        if (product.t < 2) offer(shared, product.column, product.t, product.t == 0 ? mean : squares);
    }
    take_offers(shared, layer, [&](int column, const float2(&offers)[CLUSTER]) {
        const int cluster = blockIdx.x / CLUSTER, first = cluster * CLUSTER * rows;
        Distances all = {offers[0].x};
#pragma unroll
        for (int i = 0; i < CLUSTER; i++) {
            const int count = min(rows, atoms.num_nodes - first - i * rows);
            if (count > 0) all.add(offers[i].x, offers[i].y, static_cast<float>(count));
        }
        const Moments moments = all.moments(min(CLUSTER * rows, atoms.num_nodes - first));
        float* to = sums_of(p, layer) + cluster * 2 * width + column;
        to[0] = moments.mean, to[width] = moments.squares;
    });
}

extern "C" __global__ void __launch_bounds__(threads, 1) gcn_chain_forward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    const Shared shared(memory);
    const AtomRange atoms(p);
    start(p, shared, atoms);
    fetch_weight(p, shared, 0, chunks, p.in_width / 16);
    read_input(p, shared, atoms);
    Product product;
    uint32 masks = ~0u;
#pragma unroll 1
    for (int layer = 0; layer < p.num_layers; layer++) {
        if (layer > 0) activate(p, shared, atoms, layer - 1, masks);
        const float2 bias = parameter2(p.layers[layer].bias, product.column);
        const float2 scale = product.warp < chunks ? *reinterpret_cast<const float2*>(p.scales + layer * width + product.column) : bias;
        __syncthreads();
        pull(p, shared, atoms, layer);
        wait_for_weight(shared, layer);
        __syncthreads();
        product.multiply(shared, layer > 0 ? chunks : p.in_width / 16, chunks);
        if (layer >= p.num_norms) {
            put_out(p, shared, atoms, product, scale, bias);
            break;
        }
        put_raw(p, shared, atoms, product, scale, bias, layer);
        if (layer + 1 < p.num_layers) arrive(p), fetch_weight(p, shared, layer + 1, chunks, chunks);
        if (!DROPOUT) continue;
        masks = 0;
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int row = threadIdx.x / quads + step * i, quad = threadIdx.x % quads;
            if (row >= atoms.count) break;
            const uint32 mask = drawn(p, atoms.first + row, quad, layer);
            masks |= mask << 4 * i;
            *mask_of(p, atoms.first + row, quad, layer) = static_cast<unsigned char>(mask);
        }
    }
}
