// `molgcn::gcn_stack_backward`: gradients of all layers in one launch, the same bits on every run.
//
// With G = Â dZ (Â is symmetric), a layer's gradients are dW^T = H^T G and dH = G W. A group of warps walks its tile from the last layer to
// the first with dH in registers and G in its buffer. Weight gradients of a block are added up in the order of its tiles, whichever group is
// faster (`turn`); after a barrier over the grid the blocks' sums are added up in the order of blocks.
#include "gcn_stack_gradients.cuh"
#include "gcn_stack_pool.cuh"

// Through dropout, relu and norm of a layer: d becomes the gradient of Â H W + b; column sums are added up.
__device__ __forceinline__ void through_activation(Features& d, Columns& columns, const Parameters& p, const Group& group, const Tile& tile,
                                                   int first_row, int layer) {
    const Layer& it = p.layers[layer];
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + group.row(m, half), node = tile.first_node + row;
            const bool there = row < tile.num_nodes;
            uint32 mask = 0;
            float x[chunks][4], along = 0.0f, sum = 0.0f;
            const float deviation = NORM == NORM_LAYER && there ? __ldg(p.deviations + size_t(layer) * p.num_nodes + node) : 0.0f;
#pragma unroll
            for (int c = 0; c < chunks; c++) {
                if (!(c & 1)) mask = there ? p.masks[(size_t(layer) * p.num_nodes + node) * mask_bytes + 4 * (c >> 1) + group.t] : 0;
                float weight[4], variance[4];
                if constexpr (NORM != NORM_NONE) {
                    read_columns(weight, it.norm_weight, group, c);
                    if (NORM == NORM_BATCH) read_columns(variance, it.variance, group, c);
                    const float4 all = there ? load_own<true>(p.normalised + at_node(p, layer, tile.first_node), group, first_row, m, half, c)
                                             : nothing();
                    x[c][0] = all.x, x[c][1] = all.y, x[c][2] = all.z, x[c][3] = all.w;
                }
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float& g = d.at(m, half, c, e);
                    g = mask >> (4 * (c & 1) + e) & 1 ? (DROPOUT ? g * p.dropout_scale : g) : 0.0f;
                    if constexpr (NORM != NORM_NONE) {
                        columns.v[sums - 2][c][e] += g;
                        columns.v[sums - 1][c][e] += g * x[c][e];
                        g *= weight[e];
                        if (NORM == NORM_BATCH) g *= 1.0f / sqrtf(variance[e] + p.eps);
                        sum += g;
                        along += g * x[c][e];
                    }
                }
            }
            if constexpr (NORM == NORM_LAYER) {
                sum += shuffle_xor(sum, 1), along += shuffle_xor(along, 1);
                sum += shuffle_xor(sum, 2), along += shuffle_xor(along, 2);
                sum *= 1.0f / HIDDEN, along *= 1.0f / HIDDEN;
#pragma unroll
                for (int c = 0; c < chunks; c++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float& g = d.at(m, half, c, e);
                        g = 16 * c + 4 * group.t + e < HIDDEN ? deviation * (g - sum - x[c][e] * along) : 0.0f;
                    }
            }
        }
}

// d += G W for the columns base .. base + width of W [H, columns]; G are a warp's own rows of the buffer
template <bool large, bool first>
__device__ __forceinline__ void input_gradient(Features& d, const Group& group, const Tile& tile, const float* buffer, int first_row,
                                               const float* weight, int base, int columns) {
    const float* corner = weight + 4 * group.t * HIDDEN + 2 * group.g;
    const auto read_weights = [&](float(&w)[wide][2][4], int c, int p) {
#pragma unroll
        for (int i = 0; i < wide; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int out = 16 * c + 4 * group.t + e, in = base + 16 * (p + i) + 2 * group.g;
                const float* at = weight + size_t(out) * columns + in;
                if (ALIGNED && !first) {
                    const bool there = !padded || (out < HIDDEN && in < HIDDEN);
                    at = corner + (16 * c + e) * HIDDEN + 16 * (p + i);
                    const float2 x = there ? __ldg(reinterpret_cast<const float2*>(at)) : make_float2(0.0f, 0.0f);
                    w[i][0][e] = x.x, w[i][1][e] = x.y;
                } else {
                    w[i][0][e] = out < HIDDEN && in < columns ? __ldg(at) : 0.0f;
                    w[i][1][e] = out < HIDDEN && in + 1 < columns ? __ldg(at + 1) : 0.0f;
                }
            }
    };
#pragma unroll 1
    for (int c = 0; c < chunks; c++) {
        float w[wide][2][4];
        read_weights(w, c, 0);
        matrix::Left a[ROW_TILES];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) {
            float4 v[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const bool there = !large || first_row + group.row(m, half) < tile.num_nodes;
                v[half] = there ? load_own<large>(buffer, group, first_row, m, half, c) : nothing();
            }
            a[m] = matrix::left(v);
        }
#pragma unroll
        for (int p = 0; p < chunks; p += wide) {
            matrix::Right b[wide][2];
#pragma unroll
            for (int i = 0; i < wide; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) b[i][j] = matrix::right(w[i][j]);
            if (p + wide < chunks) read_weights(w, c, p + wide);
            matrix::multiply_add<ROW_TILES, wide>([&](int m, int i) -> float(&)[2][4] { return d.v[m][p + i]; }, a, b);
        }
    }
}

__device__ __forceinline__ void prefetch_inputs(const Parameters& p, const Group& group, const Tile& tile, int layer) {
    if (layer < 1) return;
    const float* begin = p.inputs + at_node(p, layer - 1, tile.first_node);
    for (int i = 32 * (32 * group.warp + group.lane); i < tile.num_nodes * width; i += 32 * 32 * WARPS) prefetch(begin + i);
}

template <bool large>
__device__ __forceinline__ void backward(const Parameters& p, const Group& group, const Tile& tile, float* shared, float* total, const Sums& at,
                                         const Order& order) {
    const size_t plane = size_t(p.num_nodes) * width, origin = size_t(tile.first_node) * width;
    float* scaled = large ? p.scratch + origin : shared;            // D^-1/2 dZ
    float* pulled = large ? p.scratch + plane + origin : shared;    // G
    float* gradient = p.scratch + 2 * plane + origin;               // dH of a large molecule
    const int end_row = large ? tile.num_nodes : 1;
    Neighbours<large> neighbours;
    Features d;

    if constexpr (POOL == POOL_MAX) {
        share_maximum<large>(p, group, tile, scaled);
        group.sync();
    }
    for (int first_row = 0; first_row < end_row; first_row += places) {
        unpool<large>(d, p, group, tile, first_row, scaled);
        if constexpr (large) each_four([&](int m, int half, int c) {
            const int row = first_row + group.row(m, half);
            if (row < tile.num_nodes) store_own<true>(gradient, group, first_row, m, half, c, d.get(m, half, c));
        });
    }
    if constexpr (!large) neighbours.find(p.bonds, tile, group, 0);
    prefetch_inputs(p, group, tile, p.num_layers - 1);

#pragma unroll 1
    for (int layer = p.num_layers - 1; layer >= 0; layer--) {
        const Layer& it = p.layers[layer];
        prefetch_inputs(p, group, tile, layer - 1);
        Columns columns = {};
        Features outer;  // the residual connection's gradient
        group.sync();  // the buffer's last use is over
#pragma unroll 1
        for (int first_row = 0; first_row < end_row; first_row += places) {
            if constexpr (large) {
                neighbours.find(p.bonds, tile, group, first_row);
                each_four([&](int m, int half, int c) {
                    const int row = first_row + group.row(m, half);
                    d.set(m, half, c, row < tile.num_nodes ? load_own<true>(gradient, group, first_row, m, half, c) : nothing());
                });
            }
            if (RESIDUAL && !large) outer = d;
            if (activated(p, layer)) through_activation(d, columns, p, group, tile, first_row, layer);
            each_four([&](int m, int half, int c) {
                const int row = first_row + group.row(m, half);
                float v[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float dz = d.at(m, half, c, e);
                    columns.v[0][c][e] += dz;
                    v[e] = dz * neighbours.scale[m][half];
                }
                if (!large || row < tile.num_nodes) store_own<large>(scaled, group, first_row, m, half, c, four(v));
            });
        }
        column_sums(columns, group, layer, total, at, order);
        group.sync();
#pragma unroll 1
        for (int first_row = 0; first_row < end_row; first_row += places) {
            if constexpr (large) neighbours.find(p.bonds, tile, group, first_row);
            float4 g[chunks / wide][wide][ROW_TILES][2];
#pragma unroll
            for (int i = 0; i < chunks / wide; i++) neighbours.pull(g[i], scaled, p.bonds, tile, group, i * wide);
            if (!large) group.sync();  // all neighbours pulled
            each_four([&](int m, int half, int c) {
                const int row = first_row + group.row(m, half);
                const float s = neighbours.scale[m][half];
                const float4& x = g[c / wide][c % wide][m][half];
                if (!large || row < tile.num_nodes)
                    store_own<large>(pulled, group, first_row, m, half, c, make_float4(s * x.x, s * x.y, s * x.z, s * x.w));
            });
        }
        group.sync();
        weight_gradient<large>(p, group, tile, pulled, layer, total, at, order);
        if (layer > 0) {
#pragma unroll 1
            for (int first_row = 0; first_row < end_row; first_row += places) {
                if (RESIDUAL && !large)
                    d = outer;
                else
                    d.zero();
                input_gradient<large, false>(d, group, tile, pulled, first_row, it.weight, 0, HIDDEN);
                if constexpr (large) each_four([&](int m, int half, int c) {
                    const int row = first_row + group.row(m, half);
                    if (row >= tile.num_nodes) return;
                    float4 x = d.get(m, half, c);
                    if (RESIDUAL) add(x, load_own<true>(gradient, group, first_row, m, half, c));
                    store_own<true>(gradient, group, first_row, m, half, c, x);
                });
            }
        } else if (p.grad_x != nullptr) {
#pragma unroll 1
            for (int first_row = 0; first_row < end_row; first_row += places)
#pragma unroll 1
                for (int base = 0; base < p.num_features; base += width) {
                    const bool residual = RESIDUAL && p.num_features == HIDDEN;
                    d.zero();
                    if (residual && !large) d = outer;
                    input_gradient<large, true>(d, group, tile, pulled, first_row, it.weight, base, p.num_features);
                    each_four([&](int m, int half, int c) {
                        const int row = first_row + group.row(m, half);
                        if (row >= tile.num_nodes) return;
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const int column = base + 16 * c + 4 * group.t + e;
                            if (column >= p.num_features) continue;
                            const float more = residual && large ? gradient[size_t(row) * width + column] : 0.0f;
                            p.grad_x[size_t(tile.first_node + row) * p.num_features + column] = d.at(m, half, c, e) + more;
                        }
                    });
                }
        }
    }
    group.sync();
}

__device__ __noinline__ void backward_large(const Parameters& p, const Tile tile, float* total, const Sums at, const Order order) {
    backward<true>(p, Group(), tile, nullptr, total, at, order);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1) gcn_stack_backward(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(shared);
    const Group group;
    const Sums at(p);
    float* buffers = reinterpret_cast<float*>(shared);
    float* total = SHARED_GRADIENTS ? buffers + group.count * places * stride : p.partial + size_t(blockIdx.x) * at.size();
    int* turns = reinterpret_cast<int*>(buffers + group.count * places * stride + (SHARED_GRADIENTS ? at.size() : 0));
    for (int i = threadIdx.x; i < at.turns(); i += blockDim.x) turns[i] = 0;
    const int end = __ldg(p.tile_ptr + p.num_tiles);
    if (p.grad_x != nullptr) {
        const int num_nodes = __ldg(p.ptr + end);
        clear(p.grad_x, size_t(num_nodes) * p.num_features, size_t(p.num_nodes) * p.num_features);
    }
    __syncthreads();
    for (int i = group.index; blockIdx.x + gridDim.x * i < p.num_tiles; i += group.count) {
        const Tile tile = find_tile(p, blockIdx.x + gridDim.x * i);
        if (i > 0 && tile.first_graph == end) break;  // the last tiles of a padded batch are empty; a block's first tile sets its sums
        const Order order = {turns, i};
        if (tile.num_nodes <= places)
            backward<false>(p, group, tile, buffers + group.index * places * stride, total, at, order);
        else
            backward_large(p, tile, total, at, order);
    }
    if (SHARED_GRADIENTS) {
        __syncthreads();
        float* to = p.partial + size_t(blockIdx.x) * at.size();
        for (int i = threadIdx.x; i < at.size(); i += blockDim.x) to[i] = total[i];
    }
    grid_barrier(p.arrivals);
    reduce(p, at);
}
