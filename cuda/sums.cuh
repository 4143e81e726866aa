// Sums over all rows, in parts, without cancellation.
#pragma once
#include "device.cuh"

struct Moments {
    float mean, squares;  // sum of squared distances from the mean
};

// Sums of a column's distances from some value near its mean, and of their squares. They take one pass and avoid cancellation.
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
