// The signs that product_rows.cu keeps of a result, a bit for each number: of eight rows and 16 columns four words, in which bit `lane` of word
// 2 i + j belongs to row i and column j of the lane's (halves_product.cuh).
#pragma once
#include "quads.cuh"

// The order in which lanes have eight rows.
__device__ __forceinline__ constexpr int atom_of(int n) { return n ^ (n >> 1 & 1); }

// Returns the four words of the eight rows from `row` on. `chunks`: how many 16 columns there are.
__device__ __forceinline__ float4& signs_of(float* signs, int chunks, int row, int chunk) {
    return four(signs + 4 * (size_t(row / 8) * chunks + chunk));
}
// Returns where the two words of a row are, in 16 columns.
__device__ __forceinline__ const float2* words_of(const float* signs, int chunks, int row, int chunk) {
    return reinterpret_cast<const float2*>(&signs_of(const_cast<float*>(signs), chunks, row, chunk)) + atom_of(row % 8) % 2;
}
// Returns four bits: whether numbers of a row are positive, from `column` on.
__device__ __forceinline__ uint32 four_signs(const float2& words, int row, int column) {
    const int lane = 4 * (column % 16 / 2) + atom_of(row % 8) / 2;  // the lane with the first two of the columns
    const uint32 even = bits(words.x) >> lane, odd = bits(words.y) >> lane;
    return (even & 1) | (odd & 1) << 1 | (even >> 4 & 1) << 2 | (odd >> 4 & 1) << 3;
}
