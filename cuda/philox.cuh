// Philox 4x32-10 (Salmon et al., SC 2011), which decides what dropout keeps. The numbers are those of molgcn/ops/philox.py.
#pragma once
#include "device.cuh"

struct Words {
    uint32 word[4];
};

__device__ __forceinline__ Words philox(uint32 c0, uint32 c1, uint32 c2, uint32 c3, uint64 seed) {
    uint32 k0 = static_cast<uint32>(seed), k1 = static_cast<uint32>(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64 p0 = static_cast<uint64>(0xD2511F53u) * c0, p1 = static_cast<uint64>(0xCD9E8D57u) * c2;
        const uint32 high0 = static_cast<uint32>(p0 >> 32), high1 = static_cast<uint32>(p1 >> 32);
        c0 = high1 ^ c1 ^ k0;
        c1 = static_cast<uint32>(p1);
        c2 = high0 ^ c3 ^ k1;
        c3 = static_cast<uint32>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
}

// Returns which columns of an atom dropout keeps: bit e stands for column 4 quad + e.
template <class Parameters>
__device__ __forceinline__ uint32 drawn(const Parameters& p, int node, int quad, int layer) {
    const Words words = philox(node, quad, layer, 0, *p.seed);
    uint32 mask = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) mask |= uint32(words.word[e] >= p.dropout_threshold) << e;
    return mask;
}
