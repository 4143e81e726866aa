// What kernels of whole layers compute with: rows of quads of columns, and sums over all atoms.
//
// Macros: HIDDEN (H), PRECISION.
#pragma once
#include "halves.cuh"
#include "matrix.cuh"
#include "philox.cuh"

#define NORM_NONE 0
#define NORM_LAYER 1
#define NORM_BATCH 2       // with running statistics: an affine map
#define NORM_STATISTICS 3  // batch norm in training: what follows a layer's product waits for all atoms, so the next kernel does it
#define POOL_MEAN 0
#define POOL_SUM 1
#define POOL_MAX 2

constexpr int width = (HIDDEN + 15) / 16 * 16;
constexpr int quads = width / 4;  // of four columns
constexpr int chunks = width / 16;
constexpr bool wide = chunks >= 16;  // for NVRTC's time: what else would be unrolled far is a loop, and a first or last layer has no code of its own
constexpr int lanes = quads <= 4 ? 4 : quads <= 8 ? 8 : quads <= 16 ? 16 : 32;  // that finish a row
constexpr int turns = (quads + lanes - 1) / lanes;                              // float4 of a row in each of them

__device__ __forceinline__ float4 nothing() { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
__device__ __forceinline__ float4 load4(const float* at) { return __ldg(reinterpret_cast<const float4*>(at)); }
__device__ __forceinline__ float2& two(float* at) { return *reinterpret_cast<float2*>(at); }
__device__ __forceinline__ float4& four(float* at) { return *reinterpret_cast<float4*>(at); }
__device__ __forceinline__ void add(float4& sum, const float4& x) { sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w; }
__device__ __forceinline__ void add(float4& sum, float factor, const float4& x) {
    sum.x = fmaf(factor, x.x, sum.x), sum.y = fmaf(factor, x.y, sum.y), sum.z = fmaf(factor, x.z, sum.z), sum.w = fmaf(factor, x.w, sum.w);
}
__device__ __forceinline__ float& at(float4& x, int e) { return e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w; }
__device__ __forceinline__ float at(const float4& x, int e) { return e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w; }

// The largest number of a row, bits of it, from the largest of each lane
__device__ __forceinline__ uint32 row_most(float x) {
    if constexpr (lanes == 32) return static_cast<uint32>(largest(static_cast<int>(bits(x))));
#pragma unroll
    for (int mask = lanes / 2; mask > 0; mask >>= 1) x = fmaxf(x, shuffle_xor(x, mask));
    return bits(x);
}

__device__ __forceinline__ size_t at_row(int node) { return size_t(node) * width; }

// A vector [HIDDEN] with zeros beyond
__device__ __forceinline__ float parameter(const float* vector, int column) { return column < HIDDEN ? __ldg(vector + column) : 0.0f; }

struct Moments {
    float mean, squares;  // sum of squared distances from the mean
};

// Sums of a column's distances from some value near its mean, and of their squares: one pass, without cancellation
struct Distances {
    float origin, sum = 0.0f, squares = 0.0f;

    __device__ __forceinline__ void add(float x) { sum += x - origin, squares = fmaf(x - origin, x - origin, squares); }
    __device__ __forceinline__ void add(float mean, float more, float count) {
        const float distance = mean - origin;
        sum = fmaf(count, distance, sum), squares += fmaf(count * distance, distance, more);
    }
    __device__ __forceinline__ Moments moments(int count) const {
        const float mean = sum / static_cast<float>(count > 0 ? count : 1), rest = squares - sum * mean;
        return {origin + mean, rest > 0.0f || rest != rest ? rest : 0.0f};
    }
};

__device__ __forceinline__ int parts_of(int count, int each) { return (count + each - 1) / each; }
__device__ __forceinline__ int part_size(int count, int each, int i) { return min(each, count - i * each); }

// y before relu; forward and backward must agree to the bit, or they would disagree on which activations are alive
__device__ __forceinline__ float normalised(float raw, float mean, float factor, float bias) { return fmaf(raw - mean, factor, bias); }
