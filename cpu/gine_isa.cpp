// Sums of relu(x + edge) over the entries of a row, and their gradients.
// Compiled once per instruction set, with MOLGCN_ISA (a namespace) and MOLGCN_VECTOR_BYTES set by CMakeLists.txt.
#include "chunks.hpp"
#include "gine.hpp"
#include "memory.hpp"
#include "prefetch.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
void gine_forward(const Gine<T>& call, const Walk& by_target, T* out) {
    const int columns = call.columns;
    const int32_t last = by_target.rowptr[call.num_targets] - 1;
    Chunks(by_target.rowptr, call.num_targets, many).run(call.num_threads, [&] {
        return [&](int64_t, int64_t first, int rows) {
            for (int64_t i = first; i < first + rows; i++) {
                T* __restrict to = out + i * columns;
                zero(to, columns);
                for (int32_t entry = by_target.rowptr[i]; entry < by_target.rowptr[i + 1]; entry++) {
                    const int32_t later = std::min(entry + ahead, last);
                    prefetch_row(call.x + int64_t{by_target.col[later]} * columns, columns);
                    prefetch_row(call.edges + int64_t{by_target.edge[later]} * columns, columns);
                    const T* __restrict x = call.x + int64_t{by_target.col[entry]} * columns;
                    const T* __restrict edge = call.edges + int64_t{by_target.edge[entry]} * columns;
#pragma omp simd
                    for (int k = 0; k < columns; k++) to[k] += x[k] + edge[k] < 0 ? T(0) : x[k] + edge[k];  // keeps NaN
                }
            }
        };
    });
}

template <typename T>
void gine_backward(const Gine<T>& call, const Walk& by_source, const T* grad_out, T* grad_x, T* grad_edges) {
    const int columns = call.columns;
    const int32_t last = by_source.rowptr[call.num_sources] - 1;
    Chunks(by_source.rowptr, call.num_sources, many).run(call.num_threads, [&] {
        return [&](int64_t, int64_t first, int rows) {
            for (int64_t j = first; j < first + rows; j++) {
                const T* __restrict x = call.x + j * columns;
                T* __restrict to = grad_x + j * columns;
                zero(to, columns);
                for (int32_t entry = by_source.rowptr[j]; entry < by_source.rowptr[j + 1]; entry++) {
                    const int32_t later = std::min(entry + ahead, last);
                    prefetch_row(grad_out + int64_t{by_source.col[later]} * columns, columns);
                    prefetch_row(call.edges + int64_t{by_source.edge[later]} * columns, columns);
                    const int64_t at = int64_t{by_source.edge[entry]} * columns;
                    const T* __restrict grad = grad_out + int64_t{by_source.col[entry]} * columns;
                    const T* __restrict edge = call.edges + at;
                    T* __restrict of_edge = grad_edges + at;
#pragma omp simd
                    for (int k = 0; k < columns; k++) {
                        of_edge[k] = x[k] + edge[k] > 0 ? grad[k] : T(0);
                        to[k] += of_edge[k];
                    }
                }
            }
        };
    });
}

extern const GineKernels<float> float_gine_kernels{gine_forward<float>, gine_backward<float>};
extern const GineKernels<double> double_gine_kernels{gine_forward<double>, gine_backward<double>};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
