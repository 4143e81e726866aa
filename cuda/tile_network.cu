// A pass of a network on tiles of whole molecules: all instructions on one tile after another, without leaving the multiprocessor.
//
// A lane's registers hold its share of one value. Other values that are still needed lie in slots in shared memory, from which all warps
// gather. molgcn/ops/layer_network/tiles_program.py makes the instructions.
//
// Macros: HIDDEN, CHUNKS (of 16 columns, in the widest value), WARPS, MIN_BLOCKS (on a multiprocessor), PRECISION, AGGR, BONDS, NORMS,
// OTHERS, NORMALIZE (rows are scaled to length 1), DROPOUT, POOL, BACKWARD, MAX_INSTRUCTIONS, MAX_CLEARED,
// BUFFER (the most numbers of a weight in shared memory).
#include "tile_finish.cuh"
#include "tile_gather.cuh"
#include "tile_linear.cuh"
#include "tile_pool.cuh"

#define APPLY(name) op_##name,
enum Op : int { OPS(APPLY) };
#undef APPLY

extern "C" __global__ void __launch_bounds__(threads, MIN_BLOCKS) tile_network(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* weights = reinterpret_cast<float*>(memory);  // [tile_rows]
    uint32* list = reinterpret_cast<uint32*>(weights + tile_rows);
    float* buffers = weights + tile_rows + most_listed;  // [2, BUFFER]: the weight of the current product, and of the next one
    const auto slot = [&](int number) { return buffers + 2 * BUFFER + number * slot_size; };  // behind them the warps' tables
    const int warp = threadIdx.x / 32, table_size = 2 * p.num_codes * stride;
    float* sums = p.sums + size_t(blockIdx.x * WARPS + warp) * p.num_sums;
    for (int i = threadIdx.x % 32; i < p.num_sums; i += 32) sums[i] = 0.0f;
    __syncwarp();
    int current = 0;  // the number of the buffer of the next product
    if (p.first_linear >= 0) bring(p.instructions[p.first_linear], buffers);
    const int end = __ldg(p.tile_ptr + p.num_tiles);  // beyond the last molecule
    for (int index = blockIdx.x; index < p.num_tiles && __ldg(p.tile_ptr + index) < end; index += gridDim.x) {
        const Tile tile(p, index);
        const TileBonds bonds(p, tile, list);
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (tile.t == 0) weights[tile.row(half)] = bonds.weight[half];
        __syncthreads();
        Features x;
        x.zero();
#pragma unroll 1
        for (int i = 0; i < p.num_instructions; i++) {
            const Instruction& it = p.instructions[i];
            switch (it.op) {
                case op_load: x.load(tile, it.rows, it.width); break;
                case op_store: x.store(tile, it.rows, it.width); break;
                case op_put: x.put(tile, slot(it.slot)); break;
                case op_take: x.take(tile, slot(it.slot)); break;
                case op_add: x.add(tile, slot(it.slot)); break;
                case op_sync: __syncthreads(); break;
                case op_fetch: fetch(tile, it.rows, it.width); break;
                case op_linear:
                    wait_for_copies();
                    __syncthreads();  // also waits until all warps are done with the previous product
                    bring(p.instructions[it.next], buffers + (current ^ 1) * BUFFER);
                    multiply(x, tile, it, buffers + current * BUFFER);
                    current ^= 1;
                    activate(p, tile, x, it);
                    break;
#if BACKWARD
                case op_pool_grad: pool_gradient(p, tile, x, it); break;
                case op_finish_grad: finish_gradient(p, tile, x, it, sums + it.sums); break;
                case op_mask: mask(tile, x, it); break;
                case op_gather_grad: gather_gradient(p, tile, x, bonds, it, slot(it.slot), weights); break;
                case op_eps_grad: eps_gradient(tile, it, slot(it.slot), sums + it.sums); break;
                case op_table_grad:
                    table_gradient(p, tile, bonds, it, slot(it.slot), slot(p.num_slots) + warp * table_size, sums + it.sums);
                    break;
#else
                case op_gather: gather(p, tile, x, bonds, it, slot(it.slot), weights); break;
                case op_finish:
                    normed(p, tile, x, it);
                    activate(p, tile, x, it);
                    break;
                case op_pool: pool(p, tile, it, slot(it.slot)); break;
#endif
#if NORMALIZE && BACKWARD
                case op_normalize_grad: normalize_gradient(tile, x, it); break;
#elif NORMALIZE
                case op_normalize: normalize(tile, x); break;
#endif
            }
        }
        __syncthreads();
    }
    wait_for_copies();
    for (int i = 0; i < p.num_cleared; i++) {  // rows of padding
        const Cleared& it = p.cleared[i];
        const size_t first = num_real(it.atoms, it.bonds, it.num_rows), size = size_t(it.num_rows) * it.width;
        for (size_t at = first * it.width + blockIdx.x * threads + threadIdx.x; at < size; at += size_t(gridDim.x) * threads) it.rows[at] = 0.0f;
    }
}
