// What product_rows.cu brings to shared memory with WARPGROUPS: rows lie one after another in memory, so that one thread asks for a whole
// tile, and a barrier counts its bytes.
#pragma once
#include "warpgroup.cuh"

constexpr int signs_numbers = 4 * row_groups * Source::chunks;

// Shared memory beside that of the halves.
struct Arriving {
    uint64* counts;  // of a tile's bytes, and of what follows
    float *signs, *following;

    __device__ __forceinline__ explicit Arriving(float* room)
        : counts(reinterpret_cast<uint64*>(room)), signs(room + 4), following(room + 4 + signs_numbers) {}
    __device__ __forceinline__ void start(int thread) const {
        if (thread == 0) start_counting(counts), start_counting(counts + 1);
    }
    // Brings the rows that are multiplied, and with FIRST_MASK their signs.
    __device__ __forceinline__ void copy_tile(const Parameters& p, int thread, float* tile, int first, int count) const {
        if (thread > 0) return;
        const size_t from = size_t(first) * Source::in_memory;
        const uint32 bytes = 4 * count * Source::in_memory, signs_bytes = FIRST_MASK ? 16 * ((count + 7) / 8) * Source::chunks : 0;
        expect(counts, (two_sources ? 2 : 1) * bytes + signs_bytes);
        copy_in_bulk(tile, p.x + from, bytes, counts);
        if (two_sources) copy_in_bulk(tile + Source::numbers, p.second + from, bytes, counts);
        if (FIRST_MASK) copy_in_bulk(signs, p.first_signs + size_t(first / 8) * 4 * Source::chunks, signs_bytes, counts);
    }
    // Brings the rows that are needed after the products.
    __device__ __forceinline__ void copy_what_follows(const float* from, int thread, int first, int count, int row_stride) const {
        if (thread > 0) return;
        const uint32 bytes = 4 * count * row_stride;
        expect(counts + 1, bytes);
        copy_in_bulk(following, from + size_t(first) * row_stride, bytes, counts + 1);
    }
};
