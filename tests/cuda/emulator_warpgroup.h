// Asynchronous products of cuda/warpgroup.cuh, which are done at once: each warp of the four takes its part. So a missing fence, or a missing
// wait for products, shows on a GPU only.
#pragma once

struct HalvesMatrix {
    const unsigned char* begin;
    int next_columns, next_rows;

    std::uint16_t operator()(int row, int column) const {
        std::uint16_t half;
        std::memcpy(&half, begin + row / 8 * next_rows + column / 8 * next_columns + row % 8 * 16 + column % 8 * 2, 2);
        return half;
    }
};
inline HalvesMatrix halves_matrix(const void* at, int next_columns, int next_rows) {
    if (reinterpret_cast<std::uintptr_t>(at) % 16 || next_columns % 16 || next_rows % 16) emulator::fail("misaligned matrix");
    return {static_cast<const unsigned char*>(at), next_columns, next_rows};
}
inline HalvesMatrix moved(HalvesMatrix matrix, int bytes) {
    if (bytes % 16) emulator::fail("misaligned matrix");
    return {matrix.begin + bytes, matrix.next_columns, matrix.next_rows};
}
inline void copy_in_bulk(void* to, const void* from, uint32 bytes, uint64* count) { copy_to_cluster(to, from, bytes, count, 1); }
inline void show_to_products() {}
inline void begin_products() {}
inline void commit_products() {}
template <int>
void wait_for_products_but() {}
inline void arrived(float&) {}

void multiply_halves(float* sums, int groups, bool adds, const uint32 (&a)[4], const HalvesMatrix& b);  // of emulator.cpp
template <bool adds = true, int N>
void multiply_halves(float (&d)[N][4], const uint32 (&a)[4], HalvesMatrix b) {
    multiply_halves(d[0], N, adds, a, b);
}
