// How a warp holds features and multiplies them, in the kernels of all layers of a GCN.
//
// Lane 4 g + t (g < 8, t < 4) holds rows g and g + 8 of every 16. In each `span` of columns it holds the `own` adjacent columns from own t
// on: 16 bytes, a segment. The order of a product's contracted index is free as long as both operands agree. With this order the results of
// a product are operands of the next one as they stand, and all accesses to memory are 16 bytes wide.
//
// In float32, x = high + low, both TF32, and x y = high high + high low + low high. This keeps float32's range without scaling. Left
// operands are rounded to nearest and weights are truncated, so that the product that is left out, low low, has no sign of its own. In
// bf16, every word holds two numbers.
#pragma once
#include "precision.cuh"

constexpr bool packed = PRECISION == PRECISION_BF16;
constexpr int width = HIDDEN <= 16 ? 16 : (HIDDEN + 31) / 32 * 32;  // of the features with padding
constexpr bool padded = width != HIDDEN;
constexpr int span = packed && width >= 32 ? 32 : 16, spans = width / span, own = span / 4;
constexpr int number_bytes = packed ? 2 : 4;
constexpr int words = own * number_bytes / 4;   // of a segment
constexpr int products = packed ? own / 4 : 2;  // instructions that contract a span
constexpr int parts = PRECISION == PRECISION_FLOAT32 ? 2 : 1;
constexpr int column_tiles = width / 8;      // of results, 8 columns each
constexpr int side = column_tiles < 4 ? column_tiles : 4;  // of them side by side

struct alignas(4 * words) Segment {
    uint32 word[words];
};

__device__ __forceinline__ int first_column(int b, int t) { return span * b + own * t; }
// Returns the index of column n of a column tile.
__device__ __forceinline__ int tile_column(int tile, int n) {
    constexpr int a_span = own / 2;
    return span * (tile / a_span) + own * (n >> 1) + 2 * (tile % a_span) + (n & 1);
}

template <bool clamped = false>  // clamped: sets negative numbers to zero (bf16)
__device__ __forceinline__ Segment segment(const float* v) {
    Segment s;
#pragma unroll
    for (int i = 0; i < words; i++) {
        if (packed)
            s.word[i] = clamped ? pack_bf16_relu(v[2 * i], v[2 * i + 1]) : pack_bf16(v[2 * i], v[2 * i + 1]);
        else
            s.word[i] = bits(v[i]);
    }
    return s;
}
__device__ __forceinline__ float value(const Segment& s, int i) {
    if (!packed) return number(s.word[i]);
    return number(i & 1 ? s.word[i >> 1] & 0xffff0000u : s.word[i >> 1] << 16);
}
__device__ __forceinline__ void add(Segment& sum, const Segment& s) {
#pragma unroll
    for (int i = 0; i < words; i++) sum.word[i] = packed ? add_bf16(sum.word[i], s.word[i]) : bits(number(sum.word[i]) + number(s.word[i]));
}
// Returns the segment times a factor that bf16 can hold exactly.
__device__ __forceinline__ Segment times(Segment s, float factor) {
    const uint32 both = bits(factor) >> 16 | bits(factor);
#pragma unroll
    for (uint32& word : s.word) word = packed ? multiply_bf16(word, both) : bits(number(word) * factor);
    return s;
}
__device__ __forceinline__ Segment zeros() {
    Segment s;
#pragma unroll
    for (int i = 0; i < words; i++) s.word[i] = 0;
    return s;
}
__device__ __forceinline__ Segment load(const void* at) { return *static_cast<const Segment*>(at); }
__device__ __forceinline__ void store(void* at, const Segment& s) { *static_cast<Segment*>(at) = s; }

constexpr uint32 tf32_mask = 0xffffe000u;
// Returns a number as an operand, rounded to nearest. In float32 this part may lose a NaN, which stays in the low part.
__device__ __forceinline__ uint32 high_of(uint32 x) { return packed ? x : parts == 2 ? round_tf32(x) : rounded_tf32(x); }
// Returns x - high, or gain * x - high.
__device__ __forceinline__ float low_of(uint32 x, uint32 high) { return number(x) - number(rounds_tf32 ? high : high & tf32_mask); }
__device__ __forceinline__ float low_of(uint32 x, uint32 high, float gain) {
    return fmaf(number(x), gain, -number(rounds_tf32 ? high : high & tf32_mask));
}
// The gains of the weights: forward's, and backward's, whose sums have half as many steps.
constexpr float forward_gain = larger_by(spans), backward_gain = larger_by(spans / 2);
// In float32 backward takes the two small terms in bf16, which is half the instructions.
#ifndef SMALL_TERMS_IN_BF16
#define SMALL_TERMS_IN_BF16 0
#endif
constexpr bool small_in_bf16 = parts == 2 && SMALL_TERMS_IN_BF16;
// Lets forward split weights once for all row tiles where registers suffice. In training they are split again for each pair.
__device__ __forceinline__ uint32 split_once(uint32 x) { return SAVE ? x : anew(x); }

// Left operands: part[0] holds the numbers, part[1] what TF32 leaves of them. With small terms in bf16, part[1][0] is what TF32 leaves, and
// part[1][1] all of each number.
struct Left {
    uint32 part[parts][products][4];
};
struct Right {
    uint32 part[parts][products][2];
};

__device__ __forceinline__ Left left(const Segment (&rows)[2]) {
    Left a;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float low[words];
#pragma unroll
        for (int i = 0; i < words; i++) {
            const uint32 x = rows[half].word[i], high = high_of(x);
            low[i] = low_of(x, high);
            a.part[0][i >> 1][half + 2 * (i & 1)] = high;
            if (parts == 2 && !small_in_bf16) a.part[parts - 1][i >> 1][half + 2 * (i & 1)] = bits(low[i]);
        }
#pragma unroll
        for (int i = 0; small_in_bf16 && i < words; i += 2) {
            a.part[parts - 1][0][half + i] = pack_bf16(low[i], low[i + 1]);
            a.part[parts - 1][products - 1][half + i] = pack_bf16(number(rows[half].word[i]), number(rows[half].word[i + 1]));
        }
    }
    return a;
}
// Returns forward's right operand.
__device__ __forceinline__ Right right(const Segment& column) {
    Right b;
#pragma unroll
    for (int i = 0; i < words; i++) {
        const uint32 x = column.word[i];
        b.part[0][i >> 1][i & 1] = parts == 2 ? x : high_of(x);
        if (parts == 2) b.part[parts - 1][i >> 1][i & 1] = split_once(bits(fmaf(number(x), forward_gain, -number(x & tf32_mask))));
    }
    return b;
}

// A right operand of backward, which forward rounds and splits once for all tiles. In float32 `low` is what TF32 leaves, in bf16.
struct Rounded {
    Segment high;
    uint32 low[words / 2];
};
constexpr int rounded_bytes = sizeof(Segment) + (parts == 2 ? 4 * (words / 2) : 0);

__device__ __forceinline__ Rounded rounded(const Segment& column) {
    Rounded r;
    float low[words];
#pragma unroll
    for (int i = 0; i < words; i++) {
        const uint32 x = column.word[i];
        r.high.word[i] = high_of(x);
        low[i] = low_of(x, r.high.word[i], backward_gain);
    }
#pragma unroll
    for (int i = 0; i < words / 2; i++) r.low[i] = pack_bf16(low[2 * i], low[2 * i + 1]);
    return r;
}
__device__ __forceinline__ Right right(const Rounded& column) {
    Right b;
#pragma unroll
    for (int i = 0; i < words; i++) b.part[0][i >> 1][i & 1] = column.high.word[i];
#pragma unroll
    for (int i = 0; parts == 2 && i < words / 2; i++) {
        b.part[parts - 1][0][i] = column.low[i];
        b.part[parts - 1][products - 1][i] = pack_bf16(number(column.high.word[2 * i]), number(column.high.word[2 * i + 1]));
    }
    return b;
}
// Stores the operands of all lanes, from `at` on.
__device__ __forceinline__ void store(unsigned char* at, int lane, const Rounded& r) {
    store(at + lane * sizeof(Segment), r.high);
#pragma unroll
    for (int i = 0; parts == 2 && i < words / 2; i++) reinterpret_cast<uint32*>(at + 32 * sizeof(Segment))[words / 2 * lane + i] = r.low[i];
}
__device__ __forceinline__ Rounded load(const unsigned char* at, int lane) {
    Rounded r;
    r.high = load(at + lane * sizeof(Segment));
#pragma unroll
    for (int i = 0; i < words / 2; i++)
        r.low[i] = parts == 2 ? reinterpret_cast<const uint32*>(at + 32 * sizeof(Segment))[words / 2 * lane + i] : 0;
    return r;
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32 (&a)[4], const uint32 (&b)[2]) {
    if constexpr (packed)
        mma_bf16(d, a, b);
    else
        mma_tf32(d, a, b);
}

// d(j) += a b[j], blocks of 16 x 8. Small products come first, and independent ones follow each other.
template <int N, class Sums>
__device__ __forceinline__ void multiply_add(Sums d, const Left& a, const Right (&b)[N]) {
#pragma unroll
    for (int pass = parts == 2 ? 0 : 2; pass < 3; pass++)
#pragma unroll
        for (int k = 0; k < (small_in_bf16 && pass < 2 ? 1 : products); k++)
#pragma unroll
            for (int j = 0; j < N; j++)
                if (small_in_bf16 && pass < 2)
                    mma_bf16(d(j), a.part[parts - 1][pass], b[j].part[parts - 1][1 - pass]);
                else
                    multiply(d(j), a.part[pass == 0 ? parts - 1 : 0][k], b[j].part[pass == 1 ? parts - 1 : 0][k]);
}

// The features of a warp's rows, in the layout in which products leave them.
struct Features {
    float v[ROW_TILES][column_tiles][4];

    __device__ __forceinline__ float& at(int m, int half, int b, int i) { return v[m][b * (own / 2) + (i >> 1)][2 * half + (i & 1)]; }
    // Returns a lane's segment of a row, times a factor.
    template <bool clamped = false>
    __device__ __forceinline__ Segment get(int m, int half, int b, float factor) {
        float x[own];
#pragma unroll
        for (int i = 0; i < own; i++) x[i] = factor * at(m, half, b, i);
        return segment<clamped>(x);
    }
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int j = 0; j < column_tiles; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) v[m][j][i] = 0.0f;
    }
};

// Runs body(m, half) for each of a lane's rows.
template <class Body>
__device__ __forceinline__ void each_row(Body body) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) body(m, half);
}
// Runs body(m, half, b) for each of a lane's segments.
template <class Body>
__device__ __forceinline__ void each_segment(Body body) {
    each_row([&](int m, int half) {
#pragma unroll
        for (int b = 0; b < spans; b++) body(m, half, b);
    });
}
