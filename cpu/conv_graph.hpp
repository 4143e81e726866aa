// A graph's edges ordered by the node that sums them, the weights of Â, and the gradient through them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace molgcn {

// Rows in order, each with its entries. `edge` is an entry's index in the edge list, or -1 for a loop that was added.
struct Rows32 {
    int32_t* rowptr;
    int32_t* col;
    int32_t* edge;
};

// Sorts num_edges edges by `row` into `out`, by a stable counting sort. Threads share the rows, and each of them reads all edges.
//
// With add_loops the edges from a node to itself are left out, and every row ends with one loop: the last of those edges, or an added one.
// The caller has checked that the rows lie in 0 .. num_nodes - 1.
template <typename Index>
void sort_edges(const Index* row, const Index* col, int64_t num_edges, int64_t num_nodes, bool add_loops, int num_threads, const Rows32& out) {
    std::vector<int32_t> loop(add_loops ? num_nodes : 0, -1);
    std::fill(out.rowptr, out.rowptr + num_nodes + 1, 0);
    const int threads = int(std::clamp<int64_t>(num_edges >> 15, 1, num_threads));
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        const int64_t first = num_nodes * t / threads, last = num_nodes * (t + 1) / threads;
        for (int64_t e = 0; e < num_edges; e++) {
            const int64_t r = row[e];
            if (r < first || r >= last) continue;
            if (add_loops && r == int64_t(col[e])) loop[r] = int32_t(e);
            else out.rowptr[r + 1]++;
        }
    }
    for (int64_t i = 0; i < num_nodes; i++) out.rowptr[i + 1] += out.rowptr[i] + add_loops;
    std::vector<int32_t> next(out.rowptr, out.rowptr + num_nodes);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        const int64_t first = num_nodes * t / threads, last = num_nodes * (t + 1) / threads;
        for (int64_t e = 0; e < num_edges; e++) {
            const int64_t r = row[e];
            if (r < first || r >= last || (add_loops && r == int64_t(col[e]))) continue;
            const int64_t at = next[r]++;
            out.col[at] = int32_t(col[e]);
            out.edge[at] = int32_t(e);
        }
        for (int64_t i = first; add_loops && i < last; i++) {
            out.col[next[i]] = int32_t(i);
            out.edge[next[i]] = loop[i];
        }
    }
}

// The entries of Â, ordered by target, and what its gradient needs.
template <typename T>
struct Normalised {
    int64_t num_nodes;
    const int32_t* rowptr;
    const int32_t* col;
    const int32_t* edge;
    const T* edge_weight;  // by edge, or null for ones
    T loop_weight;         // of added loops

    T raw(int64_t entry) const {
        if (edge[entry] < 0) return loop_weight;
        return edge_weight == nullptr ? T(1) : edge_weight[edge[entry]];
    }

    // Computes scale[i] = (sum of row i)^-1/2, or 0 for a sum of 0 (as PyG's gcn_norm), and weight = scale[col] * raw * scale[row]. Where
    // scale is null, weight is raw.
    void weights(int num_threads, T* scale, T* weight) const {
        if (scale != nullptr) {
#pragma omp parallel for num_threads(num_threads)
            for (int64_t i = 0; i < num_nodes; i++) {
                T degree = 0;
                for (int64_t e = rowptr[i]; e < rowptr[i + 1]; e++) degree += raw(e);
                scale[i] = degree == T(0) ? T(0) : T(1) / std::sqrt(degree);
            }
        }
#pragma omp parallel for num_threads(num_threads)
        for (int64_t i = 0; i < num_nodes; i++) {
            for (int64_t e = rowptr[i]; e < rowptr[i + 1]; e++) {
                weight[e] = scale == nullptr ? raw(e) : scale[col[e]] * raw(e) * scale[i];
            }
        }
    }

    // Adds the gradient of every edge that has an entry; grad_edges [num_edges] must be zero before.
    //
    // With v = s_c w s_r and s = d^-1/2, dL/dw = g s_c s_r + dL/dd_r, and dL/dd = -s^3 / 2 (sum over the row of g w s_c + sum over the
    // column of g w s_r). A loop is in both sums. Its own part, g s^2 - g s^4 (all loops' w), is g s^4 (the other entries' w). So nothing
    // cancels, and where a node has loops only, their gradient is 0. `by_source` lists the entries of each column, as indices in this order.
    void gradient(int num_threads, const T* scale, const T* grad_entries, const int32_t* by_source_rowptr, const int32_t* by_source_col,
                  const int32_t* by_source_entry, T* grad_edges) const {
#pragma omp parallel for num_threads(num_threads)
        for (int64_t i = 0; i < num_nodes; i++) {
            if (scale == nullptr) {
                for (int64_t e = rowptr[i]; e < rowptr[i + 1]; e++) {
                    if (edge[e] >= 0) grad_edges[edge[e]] = grad_entries[e];
                }
                continue;
            }
            T loops = 0, bonds = 0, others = 0;
            for (int64_t e = rowptr[i]; e < rowptr[i + 1]; e++) {
                if (col[e] == i) {
                    loops += grad_entries[e] * raw(e);
                } else {
                    bonds += grad_entries[e] * raw(e) * scale[col[e]];
                    others += raw(e);
                }
            }
            for (int64_t k = by_source_rowptr[i]; k < by_source_rowptr[i + 1]; k++) {
                const int64_t e = by_source_entry[k];
                if (by_source_col[k] != i) bonds += grad_entries[e] * raw(e) * scale[by_source_col[k]];
            }
            const T s = scale[i], s2 = s * s, through_bonds = T(-0.5) * s * s2 * bonds;
            for (int64_t e = rowptr[i]; e < rowptr[i + 1]; e++) {
                if (edge[e] < 0) continue;
                const T own = col[e] == i ? grad_entries[e] * s2 * (s2 * others) : grad_entries[e] * scale[col[e]] * s - s2 * (s2 * loops);
                grad_edges[edge[e]] = own + through_bonds;
            }
        }
    }
};

}  // namespace molgcn
