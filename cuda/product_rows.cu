// Rows times a matrix, and what follows in the same launch: out = mask (dropout(act(x W^T + b)) + a), each part where it is wanted; with
// ADD_FIRST dropout(act(x W^T + b + a)). Before, the rows may be taken through the end of a layer (product_source.cuh), and in small batches be
// summed along the bonds (product_gather.cuh).
// For a norm that comes next, a part is left (product_parts.cuh).
// With MIDDLE there are two such products. The second multiplies the result of the first, which stays in shared memory, or with BESIDE the same
// rows as the first.
//
// A group of warps brings `rows` whole rows into shared memory as halves, and its warps share the columns of the result. In large batches it
// goes through many tiles of rows. Where there is room, the operands of the weights are RESIDENT in shared memory, for all groups of a block;
// they are loaded before the previous kernel has ended. Otherwise a block has one group, and brings the next tile while one is multiplied.
// With WARPGROUPS the halves of a tile are kept apart from the rows as they come (warpgroup_product.cuh).
//
// Macros: IN, MIDDLE (of the first of two products, 0 with one), OUT (columns), BESIDE, PARTS and PART (product_finish.cuh), PRECISION.
// Macros of what precedes the products: BEFORE and others of product_source.cuh; GATHER and others of product_gather.cuh; then FIRST_MASK (in
// backward, numbers are zeros where `first_signs` are not positive; what is left is `masked`) and FIRST_DROPOUT.
// Macros of what follows the products: ACTIVATION (of the last), DROPOUT, ADD, ADD_FIRST, MASK, MIDDLE_RELU, MIDDLE_DROPOUT, MIDDLE_ADD,
// MIDDLE_MASK.
// Macros of what else is written: WRITTEN (what BEFORE gives), KEPT (the last product, its bias and what is added first), MIDDLE_OUT, SIGNS and
// MIDDLE_SIGNS (where the result is positive, a bit for each number, which is what MASK and MIDDLE_MASK read in backward).
// Macros of the products: GROUPS, WARP_COLUMNS (of a group), ROW_GROUPS (of eight rows), COLUMN_TILES, MIDDLE_TILES, RESIDENT,
// WARPGROUPS, MIN_BLOCKS (on a multiprocessor).
#define DOUBLE 0
#include "layer_end.cuh"
#include "precision.cuh"
#include "philox.cuh"
#include "quads.cuh"
#include "product_rows_structs.h"  // molgcn/ops/layer_network/products_arguments.py

constexpr int row_groups = ROW_GROUPS, rows = 8 * row_groups, threads = 32 * WARP_COLUMNS;  // of a group

#include "product_source.cuh"

static_assert(!BESIDE || RESIDENT, "with operands in the L2 cache two products beside each other are slower than two launches");

constexpr bool chain = MIDDLE > 0 && !BESIDE;  // of two products, the second of which multiplies the result of the first
using Middle = TileOf<MIDDLE>;
using Multiplied = TileOf<chain ? MIDDLE : IN, chain ? 1 : ARRAYS>;  // by the last matrix
constexpr int chunks = Multiplied::chunks, stride = Multiplied::stride;
constexpr int out_stride = (OUT + 3) / 4 * 4, out_chunks = (OUT + 15) / 16, out_width = 16 * out_chunks;

#include "halves_product.cuh"

// Returns the PART_CHUNKS of a product: one where it is short, four where it is long, if there are registers for that. Of several short rows
// the last chunks may be next to empty, so that the sums do not grow evenly.
__device__ constexpr int part_chunks(int of_chunks, int tiles) {
    if (PRECISION != PRECISION_FLOAT32 || tiles > 1 || WARPGROUPS) return 0;
    return of_chunks <= (ARRAYS > 2 ? 6 : 2) ? 1 : of_chunks > 14 ? 4 : 0;
}
// Returns whether the sums of a product are APART: in small batches, whose products are not long and wait for each other.
__device__ constexpr bool apart(int of_chunks) {
    return PRECISION == PRECISION_FLOAT32 && row_groups <= 2 && MIDDLE_TILES == 1 && of_chunks > 2 && of_chunks <= 5;
}
using First = ProductOf<MIDDLE_TILES, Source::chunks, Source::stride, RESIDENT, part_chunks(Source::chunks, MIDDLE_TILES), apart(Source::chunks)>;
#if WARPGROUPS
#include "bulk_rows.cuh"
#include "warpgroup_product.cuh"
using Last = WarpgroupProductOf<COLUMN_TILES, chunks>;
#else
using Last = ProductOf<COLUMN_TILES, chunks, stride, RESIDENT, part_chunks(chunks, COLUMN_TILES), apart(chunks)>;
#endif

#include "product_finish.cuh"

// Brings a result's scales and bias into `vectors`, and a weight's operands, if they are RESIDENT, into `operands`. Returns the operands.
template <class After>
__device__ __forceinline__ const float* bring_weight(const Parameters& p, const Result& it, float* vectors, float* operands, int operand_numbers) {
    constexpr int columns = (After::columns + 15) / 16 * 16, of_part = After::parts > 1 ? (After::part + 3) / 4 * 4 : columns;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        const float* bias = bias_of(p, it, i / of_part);
        const bool there = i / of_part < After::parts && i % of_part < After::part && bias != nullptr;
        vectors[i] = __ldg(it.scales + i), vectors[columns + i] = there ? __ldg(bias + i % of_part) : 0.0f;
    }
    if (!RESIDENT) return it.fragments;
    for (int i = 4 * threadIdx.x; i < operand_numbers; i += 4 * blockDim.x) copy16(operands + i, it.fragments + i, true);
    return operands;
}

__device__ __forceinline__ void write_zeros(int thread, float* out, int row_stride, int first, int end) {
#pragma unroll 1
    for (int quad = thread; quad < (end - first) * (row_stride / 4); quad += threads) four(out + size_t(first) * row_stride + 4 * quad) = nothing();
}
__device__ __forceinline__ void write_padding(const Parameters& p, int thread, int first, int end) {
#pragma unroll
    for (int part = 0; part < PARTS; part++) write_zeros(thread, out_of(p, p.last, part), (PART + 3) / 4 * 4, first, end);
    if (KEPT) write_zeros(thread, p.last.kept, out_stride, first, end);
    if (WRITTEN) write_zeros(thread, p.written, Source::in_memory, first, end);
    if (GATHERED) write_zeros(thread, p.gathered, Source::in_memory, first, end);
    if (FIRST_MASK) write_zeros(thread, p.masked, Source::in_memory, first, end);
    if (MIDDLE_OUT) write_zeros(thread, p.middle.out, Middle::in_memory, first, end);
}

#include "product_parts.cuh"
#if GATHER
#include "product_gather.cuh"
#endif

// Asks for the rows that a tile needs after its products, which take longer than the rows take to come to the cache.
__device__ __forceinline__ void prefetch_rows(int thread, const float* from, int row_stride, int first, int count) {
    const float* begin = from + size_t(first) * row_stride;
#pragma unroll 1
    for (int i = 32 * thread; i < count * row_stride; i += 32 * threads) prefetch(begin + i);  // a line of the cache each
}
__device__ __forceinline__ void prefetch_what_follows(const Parameters& p, int thread, int first, int count) {
    if (ADD && !adds_what_follows && !(WRITTEN && p.last.add == p.written)) prefetch_rows(thread, p.last.add, out_stride, first, count);
    if (MIDDLE_ADD) prefetch_rows(thread, p.middle.add, Middle::in_memory, first, count);
    if (SUMS && !follows) prefetch_rows(thread, p.next_source, out_stride, first, count);
}

constexpr bool has_norm = BEFORE != BEFORE_NOTHING && BEFORE_NORM, leaves = MOMENTS || SUMS;
constexpr int in_columns = Source::in_memory, source_numbers = (two_sources ? 2 : 1) * Source::numbers;
constexpr int scratch_numbers = has_norm ? (merge_numbers(GROUPS * threads, in_columns) + 3) / 4 * 4 : 0;
constexpr int first_operands = 256 * Source::chunks * Middle::chunks, last_operands = 256 * chunks * out_chunks;
constexpr int between_numbers = chain ? Middle::numbers : 0;

// The shared memory of a block in numbers: `RowBlocks.shared_bytes` in molgcn/ops/layer_network/products_plan.py.
struct Shared {
    static constexpr int vectors = 0, of_norm = vectors + 2 * (Middle::width + out_width), scratch = of_norm + (has_norm ? 6 * in_columns : 0);
    static constexpr int parts = scratch + (WARPGROUPS ? 0 : scratch_numbers);
    static constexpr int operands = parts + (leaves ? GROUPS * part_numbers(OUT) : 0), groups = operands + (RESIDENT ? first_operands + last_operands : 0);
    static constexpr int scales = 2 * rows;  // of a group: in each of two tiles, or of what is multiplied first and last; then the tiles
    static constexpr int group = scales + (source_numbers > between_numbers ? source_numbers : between_numbers);
    // With WARPGROUPS the halves follow, then Arriving. Until there are halves, their place is the scratch.
};

extern "C" __global__ void __launch_bounds__(GROUPS * threads, MIN_BLOCKS) product_rows(const __grid_constant__ Parameters p) {
    SHARED_MEMORY(memory);
    float* shared = reinterpret_cast<float*>(memory);
    const int group = threadIdx.x / threads, thread = threadIdx.x % threads;
    float *scales = shared + Shared::groups + group * Shared::group, *tiles = scales + Shared::scales;
    float *halves = tiles + source_numbers, *scratch = WARPGROUPS ? halves : shared + Shared::scratch;
    float *of_norm = shared + Shared::of_norm, *parts = shared + Shared::parts + group * part_numbers(OUT);
    float *middle_vectors = shared, *last_vectors = shared + 2 * Middle::width, *operands = shared + Shared::operands;
    const auto sync = [&] {
        if (GROUPS == 1)
            __syncthreads();
        else
            barrier(1 + group, threads);
    };
    const int num_rows = num_real(p.atoms, p.bonds, p.num_rows), end = (num_rows + rows - 1) / rows * rows;
    // In a batch with much padding the last blocks have nothing to do. The others share the tiles, so that few parts are left.
    const int blocks = min(static_cast<int>(gridDim.x), max(1, (num_rows + rows * GROUPS - 1) / (rows * GROUPS))), block = blockIdx.x;
    const auto write_all_padding = [&] {
        for (int row = end + (group * gridDim.x + block) * rows; row < p.num_rows; row += rows * gridDim.x * GROUPS)
            write_padding(p, thread, row, min(row + rows, p.num_rows));
    };
    if (block >= blocks) {
        wait_for_previous();
        for (int i = threadIdx.x; leaves && i < part_numbers(OUT); i += blockDim.x) p.left[size_t(block) * part_numbers(OUT) + i] = 0.0f;
        write_all_padding();
        return;
    }
    const float *first_weight = nullptr, *last_weight = bring_weight<AfterLast>(p, p.last, last_vectors, operands + first_operands, last_operands);
    if constexpr (MIDDLE > 0) first_weight = bring_weight<AfterMiddle>(p, p.middle, middle_vectors, operands, first_operands);
    const int start_of_group = (group * blocks + block) * rows;  // the last tiles are then on as many multiprocessors as possible
    const int step = (p.backwards ? -rows : rows) * blocks * GROUPS;
    int first = p.backwards ? end - rows - start_of_group : start_of_group;
    const auto is_there = [&] { return static_cast<uint32>(first) < static_cast<uint32>(num_rows); };
    const auto left = [&] { return min(rows, num_rows - first); };
    First before;
    Last product;
#if WARPGROUPS
    const auto start = [&] { product.start(last_weight, out_chunks); };
    const Arriving arriving(halves + (Last::numbers > scratch_numbers ? Last::numbers : scratch_numbers));
    arriving.start(thread);
    const bool adds_written = adds_what_follows && WRITTEN && p.last.add == p.written;
#else
    before.row = product.row = 0;  // every group has a tile of its own
    const auto start = [&] { product.start(last_weight, 0, chunks, chunks, out_chunks); };
#endif
    const auto multiply_first = [&](const float* tile) {
        before.start(first_weight, 0, Source::chunks, Source::chunks, Middle::chunks);
        before.zero();
        before.multiply(tile);
    };
    if (!RESIDENT && !WARPGROUPS) start();
#if BEFORE && BEFORE_NORM
    LoadColumns loaded(p.before, 0, in_columns, of_norm, BEFORE == BEFORE_GRAD, blockIdx.x == 0);
#endif
#if MOMENTS || SUMS
    Part part(p, product);
#endif
#if GATHER
    Incoming bonds = bonds_of(p, thread, first, num_rows);
#endif
    if (p.early)
        run_beside_previous();
    else
        wait_for_previous();
    const auto copy = [&](float* to) {
        if (GATHER || !is_there()) return;
#if WARPGROUPS
        arriving.copy_tile(p, thread, to, first, left());
#else
        copy_rows(p, thread, to, first, left());
#endif
    };
    copy(tiles);
#if BEFORE && BEFORE_NORM
    const Columns columns = loaded.merged(in_columns, num_rows, scratch);
#else
    const Columns columns = {};
#endif
    wait_for_copies();
    __syncthreads();  // the weights are there
    for (int current = 0; is_there(); current ^= 1) {
        float *tile = tiles + (RESIDENT || WARPGROUPS ? 0 : current * source_numbers), *row_scales = scales + (chain ? 0 : current * rows);
        const int begin = first, count = left();
        if (ROW_GROUPS > 2) prefetch_what_follows(p, thread, begin, count);  // in small batches the cache has them
        const auto take = [&](int row, int column, float4& x) {
            const size_t at = size_t(begin + row) * Source::in_memory + column;
            if (!GATHER && BEFORE != BEFORE_NOTHING)
                x = through_end(p, columns, begin + row, column, x, two_sources ? four(tile + Source::numbers + row * Source::stride + column) : nothing());
            if (!GATHER && WRITTEN) four(p.written + at) = x;
#if WARPGROUPS
            if (adds_written) four(arriving.following + row * Source::in_memory + column) = x;
            if (FIRST_MASK) four(p.masked + at) = x = through_mask(p, begin + row, column, x, arriving.signs, begin);
#else
            if (FIRST_MASK) four(p.masked + at) = x = through_mask(p, begin + row, column, x, p.first_signs, 0);
#endif
        };
        const auto in_place = [&](int stride) { return [=](int row, int column, const float4& x) { four(tile + row * stride + column) = x; }; };
#if WARPGROUPS
        sync();  // waits until all are done with the tile before
        if (follows && !adds_written) arriving.copy_what_follows(SUMS ? p.next_source : p.last.add, thread, begin, count, out_stride);
        wait_for_phase(arriving.counts, current);
        const auto put = [&](int row, int column, const float4& x) { Last::put(halves, row, column, x); };
        convert_rows<Source>(thread, tile, row_scales, count, take, put);
        start();  // not earlier, since the operands take registers
        show_to_products();
#else
        wait_for_copies();
#if GATHER
        gather_rows(p, columns, thread, tile, begin, count, num_rows, bonds);
        sync();
#endif
        convert_rows<Source>(thread, tile, row_scales, count, take, in_place(Source::stride));
#endif
        sync();  // also waits until all are done with the tile before
        first += step;
        if (!RESIDENT) copy(WARPGROUPS ? tiles : tiles + (current ^ 1) * source_numbers);
#if GATHER
        bonds = bonds_of(p, thread, first, num_rows);
#endif
        Further<AfterMiddle> of_middle[MIDDLE_TILES];
        Further<AfterLast> of_last[COLUMN_TILES];
        if constexpr (MIDDLE > 0) ask_early(p.middle, before, begin, count, of_middle);
        ask_early(p.last, product, begin, count, of_last);
#if MOMENTS || SUMS
        part.ask(p, product, begin, count);
#endif
        if constexpr (chain) {
            multiply_first(tile);
            sync();  // what follows is written over the tile
            const auto put = [&](int row, int column, const float2& x) { two(tile + row * Middle::stride + column) = x; };
            finish<AfterMiddle, MIDDLE_TILES>(p, p.middle, before, middle_vectors, row_scales, nullptr, begin, count, of_middle, put);
            row_scales = scales + rows;
            sync();
            convert_rows<Middle>(thread, tile, row_scales, count, [](int, int, float4&) {}, in_place(Middle::stride));
            sync();
        }
        if constexpr (BESIDE) multiply_first(tile);
        if (RESIDENT) start();
        product.zero();
        product.multiply(WARPGROUPS ? halves : tile);
        if (RESIDENT) {
            sync();
            copy(tiles);
        } else if (!WARPGROUPS && is_there()) {
            start();
        }
        const float* following = nullptr;
#if WARPGROUPS
        if (follows && !adds_written) wait_for_phase(arriving.counts + 1, current);
        following = arriving.following;
#endif
        const auto nowhere = [](int, int, const float2&) {};
        if constexpr (BESIDE) finish<AfterMiddle, MIDDLE_TILES>(p, p.middle, before, middle_vectors, row_scales, nullptr, begin, count, of_middle, nowhere);
        finish<AfterLast, COLUMN_TILES>(p, p.last, product, last_vectors, row_scales, following, begin, count, of_last, nowhere);
#if MOMENTS || SUMS
        part.add(p, product, following, begin, count);
#endif
        if (count < rows) write_padding(p, thread, num_rows, min(begin + rows, p.num_rows));
    }
    write_all_padding();
#if MOMENTS || SUMS
    float* to = p.left + size_t(blockIdx.x) * part_numbers(OUT);
    part.leave(product, GROUPS > 1 ? parts : to);
    if (GROUPS > 1) {
        __syncthreads();
        merge_groups(shared + Shared::parts, to);
    }
#endif
    if (p.early) wait_and_hold_next();
}
