// Products of tensor cores: the lanes of a warp meet, and each takes its part of the result. Part of emulator.cpp.
#pragma once

inline float half_number(uint32 u) {
    const uint32 sign = (u & 0x8000u) << 16, rest = (u & 0x7fffu) << 13;
    return number(sign | (rest >= 0x0f800000u ? 0x70000000u + rest : bits(number(rest) * 0x1p112f)));  // infinities and NaN have no exponent
}

// Lane 4 g + t: a = rows g, g + 8 of a step's columns; b = its rows of column g; d = rows g, g + 8 of columns 2 t, 2 t + 1. A word holds one
// of 8 columns or two of 16.
template <int K, class Number>
void multiply(Warp& warp, Number number_of) {
    constexpr int in_word = K / 8;
    double a[16][K], b[K][8];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            for (int e = 0; e < in_word; e++) {
                const int k = in_word * (lane % 4) + e;
                a[lane / 4 + 8 * (i % 2)][k + K / 2 * (i / 2)] = number_of(warp.in[lane][4 + i], e);
                if (i < 2) b[k + K / 2 * i][lane / 4] = number_of(warp.in[lane][8 + i], e);
            }
    for (int row = 0; row < 16; row++) {
        double sums[8];
        for (int column = 0; column < 8; column++) sums[column] = number(warp.in[4 * (row % 8) + column / 2][row / 8 * 2 + column % 2]);
        for (int k = 0; k < K; k++)
            for (int column = 0; column < 8; column++) sums[column] += a[row][k] * b[k][column];
        for (int column = 0; column < 8; column++) {
            const double sum = sums[column];
            warp.out[4 * (row % 8) + column / 2][row / 8 * 2 + column % 2] = sum != sum ? 0x7fffffffu : bits(cut_off(sum));  // the GPU's own NaN
        }
    }
}
void multiply_collective(int kind, float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    const uint32 in[10] = {bits(d[0]), bits(d[1]), bits(d[2]), bits(d[3]), a[0], a[1], a[2], a[3], b[0], b[1]};
    const uint32* out = collective(kind, in, 10, [kind](Warp& warp) {
        if (kind == 2)
            multiply<8>(warp, [](uint32 u, int) { return number(u & 0xffffe000u); });
        else if (kind == 3)
            multiply<16>(warp, [](uint32 u, int which) { return number(which ? u & 0xffff0000u : u << 16); });
        else
            multiply<16>(warp, [](uint32 u, int which) { return half_number(which ? u >> 16 : u); });
    });
    for (int i = 0; i < 4; i++) d[i] = number(out[i]);
}
void mma_tf32(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(2, d, a, b); }
void mma_bf16(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(3, d, a, b); }
void mma_half(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(8, d, a, b); }
