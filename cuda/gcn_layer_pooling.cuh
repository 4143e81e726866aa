// Mean, sum or max over a molecule's atoms.
#pragma once
#include "gcn_layer.cuh"

struct Pooled {  // of four columns
    float4 value, ties;  // ties: how many atoms have the largest value, for POOL_MAX only

    __device__ __forceinline__ explicit Pooled(int num_atoms) {
        const float lowest = POOL == POOL_MAX && num_atoms > 0 ? number(0xff800000u) : 0.0f;
        value = make_float4(lowest, lowest, lowest, lowest), ties = nothing();
    }
    // Adds an atom.
    __device__ __forceinline__ void add(const float4& x) { add(x, make_float4(1.0f, 1.0f, 1.0f, 1.0f)); }
    // Adds some atoms: their sum, or their largest values and how many have them.
    __device__ __forceinline__ void add(const float4& x, const float4& count) {
        if (POOL != POOL_MAX) {
            ::add(value, x);
            return;
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float y = at(x, e);
            float& most = at(value, e);
            at(ties, e) = y > most ? at(count, e) : at(ties, e) + (y == most ? at(count, e) : 0.0f);
            if (y > most || y != y) most = y;
        }
    }
    // Writes the result, once all atoms have been added.
    __device__ __forceinline__ void leave(const Parameters& p, int graph, int quad, int num_atoms) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (POOL == POOL_MEAN && num_atoms > 0) at(value, e) /= static_cast<float>(num_atoms);
            if (4 * quad + e < HIDDEN) p.pooled[size_t(graph) * HIDDEN + 4 * quad + e] = at(value, e);
        }
        if (POOL == POOL_MAX && p.largest != nullptr) {
            four(p.largest + at_row(graph) + 4 * quad) = value;
            four(p.ties + at_row(graph) + 4 * quad) = ties;
        }
    }
};
