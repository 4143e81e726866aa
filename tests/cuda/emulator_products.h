// Products of tensor cores: the lanes of a warp meet, and each takes its part of the result. Part of emulator.cpp.
#pragma once

// Lane 4 g + t: a = rows g, g + 8 of a step's columns; b = its rows of column g; d = rows g, g + 8 of columns 2 t, 2 t + 1
template <int K, class A, class B>
void multiply(Warp& warp, A a, B b) {
    double left[16][K], right[K][8];
    for (int k = 0; k < K; k++) {
        for (int row = 0; row < 16; row++) left[row][k] = a(row, k);
        for (int column = 0; column < 8; column++) right[k][column] = b(k, column);
    }
    for (int row = 0; row < 16; row++) {
        double sums[8];
        const auto at = [&](auto& words, int column) -> uint32& { return words[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2]; };
        for (int column = 0; column < 8; column++) sums[column] = number(at(warp.in, column));
        for (int k = 0; k < K; k++)
            for (int column = 0; column < 8; column++) sums[column] += left[row][k] * right[k][column];
        for (int column = 0; column < 8; column++) {
            const double sum = sums[column];
            at(warp.out, column) = sum != sum ? 0x7fffffffu : bits(cut_off(sum));  // the GPU's own NaN
        }
    }
}
float half_of(uint32 u, int which) {
    const auto part = static_cast<std::uint16_t>(u >> 16 * which);
    _Float16 half;
    std::memcpy(&half, &part, 2);
    return static_cast<float>(half);
}
void multiply_collective(int kind, float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    const uint32 in[10] = {bits(d[0]), bits(d[1]), bits(d[2]), bits(d[3]), a[0], a[1], a[2], a[3], b[0], b[1]};
    const uint32* out = collective(kind, in, 10, [kind](Warp& warp) {
        const auto tf32 = [](uint32 u) { return number(u & 0xffffe000u); };
        const auto half = [kind](uint32 u, int which) {
            return kind == 8 ? half_of(u, which) : number(which ? u & 0xffff0000u : u << 16);
        };
        if (kind == 2)
            multiply<8>(
                warp, [&](int row, int k) { return tf32(warp.in[4 * (row % 8) + k % 4][4 + row / 8 + 2 * (k / 4)]); },
                [&](int k, int column) { return tf32(warp.in[4 * column + k % 4][8 + k / 4]); });
        else
            multiply<16>(
                warp, [&](int row, int k) { return half(warp.in[4 * (row % 8) + k % 8 / 2][4 + row / 8 + 2 * (k / 8)], k % 2); },
                [&](int k, int column) { return half(warp.in[4 * column + k % 8 / 2][8 + k / 8], k % 2); });
    });
    for (int i = 0; i < 4; i++) d[i] = number(out[i]);
}
void mma_tf32(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(2, d, a, b); }
void mma_bf16(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(3, d, a, b); }
void mma_half(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) { multiply_collective(8, d, a, b); }
