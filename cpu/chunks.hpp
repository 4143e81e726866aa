// Rows of a sparse matrix shared out among threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace molgcn {
namespace MOLGCN_ISA {

constexpr int tile_rows = 64;
constexpr int64_t chunk_work = 2048;  // rows and entries of the smallest chunk that is worth waking a thread for

// The rows of a sparse matrix in chunks of about equal numbers of rows and entries. Chunks depend on the graph alone, so that sums over
// chunks in order give the same bits for any number of threads.
struct Chunks {
    const int32_t* rowptr;
    int64_t num_nodes, count;

    Chunks(const int32_t* rowptr, int64_t num_nodes, int64_t most)
        : rowptr(rowptr), num_nodes(num_nodes), count(std::clamp((rowptr[num_nodes] + num_nodes) / chunk_work, int64_t{1}, most)) {}

    int64_t begin(int64_t chunk) const {
        const int64_t work = (rowptr[num_nodes] + num_nodes) * chunk / count;
        int64_t low = 0, high = num_nodes;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (rowptr[middle] + middle < work) low = middle + 1;
            else high = middle;
        }
        return chunk == count ? num_nodes : low;
    }

    // Calls visit(chunk, first row, number of rows) for every tile. The tiles of a chunk come in order, on one thread.
    template <typename MakeVisit>
    void run(int num_threads, const MakeVisit& make_visit) const {
        const int threads = int(std::min<int64_t>(num_threads, count));
#pragma omp parallel num_threads(threads)
        {
            auto visit = make_visit();
#pragma omp for schedule(dynamic, 1)
            for (int64_t chunk = 0; chunk < count; chunk++) {
                const int64_t last = begin(chunk + 1);
                for (int64_t row = begin(chunk); row < last; row += tile_rows) {
                    visit(chunk, row, int(std::min<int64_t>(tile_rows, last - row)));
                }
            }
        }
    }
};

constexpr int64_t many = 4096;  // the most chunks, where nothing is kept for each

}  // namespace MOLGCN_ISA
}  // namespace molgcn
