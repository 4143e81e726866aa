// Asynchronous products of cuda/warpgroup.cuh, which are done at once: each warp of the four takes its part. So a missing fence, or a missing
// wait for products, shows on a GPU only.
#pragma once

struct HalvesMatrix {
    const unsigned char* begin;
    int next_columns, next_rows;

    float operator()(int row, int column) const {
        const unsigned char* at = begin + row / 8 * next_rows + column / 8 * next_columns + row % 8 * 16 + column % 8 * 2;
        _Float16 half;
        std::memcpy(&half, at, 2);
        return static_cast<float>(half);
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

template <bool adds = true, int N>
void multiply_halves(float (&d)[N][4], const uint32 (&a)[4], HalvesMatrix b) {
    const auto sums = reinterpret_cast<std::uintptr_t>(&d);
    const uint32 in[6] = {a[0], a[1], a[2], a[3], uint32(sums), uint32(std::uint64_t(sums) >> 32)};
    emulator::collective(9, in, 6, [&b](emulator::Warp& warp) {
        double left[16][16], right[8 * N][16];
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < 16; k += 2) {
                const float2 both = unpack_half(warp.in[4 * (row % 8) + k % 8 / 2][row / 8 + 2 * (k / 8)]);
                left[row][k] = both.x, left[row][k + 1] = both.y;
            }
        for (int column = 0; column < 8 * N; column++)
            for (int k = 0; k < 16; k++) right[column][k] = b(column, k);
        for (int lane = 0; lane < 32; lane++) {
            auto* sum = reinterpret_cast<float*>(std::uint64_t(warp.in[lane][5]) << 32 | warp.in[lane][4]);
            for (int i = 0; i < 4 * N; i++) {
                const int row = lane / 4 + i % 4 / 2 * 8, column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
                double x = adds ? sum[i] : 0.0;
                for (int k = 0; k < 16; k++) x += left[row][k] * right[column][k];
                sum[i] = x != x ? number(0x7fffffffu) : cut_off(x);
            }
        }
    });
}
