// Products of tensor cores: the lanes of a warp meet, and each takes its part of the result. Part of emulator.cpp.
#pragma once
#include "emulator_warpgroup.h"

inline float half_number(uint32 u) {
    const uint32 sign = (u & 0x8000u) << 16, rest = (u & 0x7fffu) << 13;
    return number(sign | (rest >= 0x0f800000u ? 0x70000000u + rest : bits(number(rest) * 0x1p112f)));  // infinities and NaN have no exponent
}

// sums [8] += a [K] b [K x 8]
template <int K>
void add_products(double (&sums)[8], const double (&a)[K], const double (&b)[K][8]) {
    for (int k = 0; k < K; k++)
        for (int column = 0; column < 8; column++) sums[column] += a[k] * b[k][column];
}
inline float rounded(double sum) { return sum != sum ? number(0x7fffffffu) : cut_off(sum); }  // the GPU's own NaN

// Lane 4 g + t: a = rows g, g + 8 of a step's columns; b = its rows of column g; d = rows g, g + 8 of columns 2 t, 2 t + 1. A word holds one
// of 8 columns or two of 16.
template <int K, class Number>
void read_rows(const Warp& warp, int first, double (&a)[16][K], Number number_of) {
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < K / 8; e++)
                a[lane / 4 + 8 * (i % 2)][K / 8 * (lane % 4) + e + K / 2 * (i / 2)] = number_of(warp.in[lane][first + i], e);
}
template <int K, class Number>
void multiply(Warp& warp, Number number_of) {
    double a[16][K], b[K][8];
    read_rows(warp, 4, a, number_of);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < K / 8; e++) b[K / 8 * (lane % 4) + e + K / 2 * i][lane / 4] = number_of(warp.in[lane][8 + i], e);
    for (int row = 0; row < 16; row++) {
        double sums[8];
        for (int column = 0; column < 8; column++) sums[column] = number(warp.in[4 * (row % 8) + column / 2][row / 8 * 2 + column % 2]);
        add_products(sums, a[row], b);
        for (int column = 0; column < 8; column++) warp.out[4 * (row % 8) + column / 2][row / 8 * 2 + column % 2] = bits(rounded(sums[column]));
    }
}
inline float half_of_word(uint32 u, int which) { return half_number(which ? u >> 16 : u); }
void multiply_collective(int kind, float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    const uint32 in[10] = {bits(d[0]), bits(d[1]), bits(d[2]), bits(d[3]), a[0], a[1], a[2], a[3], b[0], b[1]};
    const uint32* out = collective(kind, in, 10, [kind](Warp& warp) {
        if (kind == 2)
            multiply<8>(warp, [](uint32 u, int) { return number(u & 0xffffe000u); });
        else if (kind == 3)
            multiply<16>(warp, [](uint32 u, int which) { return number(which ? u & 0xffff0000u : u << 16); });
        else
            multiply<16>(warp, half_of_word);
    });
    for (int i = 0; i < 4; i++) d[i] = number(out[i]);
}
void mma_tf32(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(2, d, a, b); }
void mma_bf16(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(3, d, a, b); }
void mma_half(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(8, d, a, b); }
void multiply_halves(float* sums, int groups, bool adds, const uint32 (&a)[4], const HalvesMatrix& b) {
    const auto address = reinterpret_cast<std::uintptr_t>(sums);
    const uint32 in[6] = {a[0], a[1], a[2], a[3], uint32(address), uint32(std::uint64_t(address) >> 32)};
    collective(9, in, 6, [&](Warp& warp) {
        double left[16][16], right[16][8];
        read_rows(warp, 0, left, half_of_word);
        for (int group = 0; group < groups; group++) {
            for (int k = 0; k < 16; k++)
                for (int column = 0; column < 8; column++) right[k][column] = half_number(b(8 * group + column, k));
            for (int row = 0; row < 16; row++) {
                float* at[8];
                double all[8];
                for (int column = 0; column < 8; column++) {
                    const uint32* lane = warp.in[4 * (row % 8) + column / 2];
                    at[column] = reinterpret_cast<float*>(std::uint64_t(lane[5]) << 32 | lane[4]) + 4 * group + row / 8 * 2 + column % 2;
                    all[column] = adds ? *at[column] : 0.0;
                }
                add_products(all, left[row], right);
                for (int column = 0; column < 8; column++) *at[column] = rounded(all[column]);
            }
        }
    });
}
