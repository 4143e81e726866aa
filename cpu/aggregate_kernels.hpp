// Sums, maxima and their gradients over the edges of rows of any width. A weight may count for all, some or single channels.
#pragma once

#include <limits>
#include <type_traits>

#include "aggregate.hpp"
#include "chunks.hpp"
#include "gather.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

enum class Weighted { no, alike, each };  // alike: one weight for all channels of a panel; each: one for each channel

// P vectors of channels. The last one begins `last` channels after the first, so that none beyond a row is touched. A row narrower than a
// vector has `narrow` channels in one vector.
struct Panel {
    int column;
    ptrdiff_t last;
    int narrow;
};

template <int P, typename T>
inline void load_panel(const T* row, const Panel& panel, Vec<T> (&to)[P]) {
    if (panel.narrow > 0) {
        T part[lanes<T>] = {};
        for (int k = 0; k < panel.narrow; k++) part[k] = row[k];
        to[0] = load_any(part);
        return;
    }
    for (int p = 0; p < P; p++) to[p] = load_any(row + (p == P - 1 ? panel.last : p * lanes<T>));
}

template <int P, typename T>
inline void store_panel(T* row, const Panel& panel, const Vec<T> (&from)[P]) {
    if (panel.narrow > 0) {
        for (int k = 0; k < panel.narrow; k++) row[k] = from[0][k];
        return;
    }
    for (int p = 0; p < P; p++) store_any(row + (p == P - 1 ? panel.last : p * lanes<T>), from[p]);
}

template <Pass pass, Weighted weighted, int P, typename T>
[[gnu::noinline]] void pull_panel(const Aggregate<T>& a, int64_t first, int64_t rows, Panel panel) {
    const bool reads_own = pass == Pass::ties || pass == Pass::max_backward;
    const int64_t columns = a.columns, heads = weighted == Weighted::alike ? columns / a.channels_per_weight : 1;
    const int64_t head = weighted == Weighted::alike ? panel.column / a.channels_per_weight : 0;
    const int64_t end = a.rowptr[first + rows];
    const Vec<T> one = splat<T>(1), zero{};
    for (int64_t i = first; i < first + rows; i++) {
        const int64_t begin = a.rowptr[i], after = a.rowptr[i + 1], here = i * columns + panel.column;
        Vec<T> total[P], own[P], w[P], x[P];
        for (int p = 0; p < P; p++) total[p] = pass == Pass::max && begin < after ? splat<T>(-std::numeric_limits<T>::infinity()) : zero, w[p] = one;
        if (reads_own) load_panel<P>(a.own + here, panel, own);
        for (int64_t e = begin; e < after; e++) {
            const char* ahead = reinterpret_cast<const char*>(a.pulled + a.col[std::min(e + prefetch_distance, end - 1)] * columns + panel.column);
            for (size_t line = 0; line < P * sizeof(Vec<T>); line += 64) __builtin_prefetch(ahead + line);
            const int64_t there = a.col[e] * columns + panel.column;
            load_panel<P>(a.pulled + there, panel, x);
            if (weighted == Weighted::each) load_panel<P>(a.weight + a.edge[e] * columns + panel.column, panel, w);
            if (weighted == Weighted::alike) w[0] = splat<T>(a.weight[a.edge[e] * heads + head]);
            for (int p = 0; p < P; p++) {
                const Vec<T> of_edge = w[weighted == Weighted::each ? p : 0];
                const Vec<T> message = weighted == Weighted::no ? x[p] : of_edge * x[p];
                if (pass == Pass::max) {
                    total[p] = message > total[p] || message != message ? message : total[p];  // keeps NaN
                } else if (pass == Pass::ties) {
                    total[p] += message == own[p] ? one : zero;
                } else if (pass == Pass::max_backward) {
                    Vec<T> largest[P];
                    load_panel<P>(a.largest + there, panel, largest);
                    total[p] += of_edge * own[p] == largest[p] ? message : zero;
                } else {
                    total[p] += message;
                }
            }
        }
        if (pass == Pass::mean && begin < after) {
            for (int p = 0; p < P; p++) total[p] /= splat<T>(T(after - begin));
        }
        if (pass == Pass::ties) {
            load_panel<P>(a.grad + here, panel, x);
            for (int p = 0; p < P; p++) {
                total[p] += own[p] == zero ? one : zero;
                total[p] = total[p] > zero ? x[p] / total[p] : zero;
            }
        }
        store_panel<P>(a.out + here, panel, total);
    }
}

// Visits the rows of a chunk, in panels that lie within the channels of one weight.
template <Pass pass, Weighted weighted, typename T>
void pull_rows(const Aggregate<T>& a, int64_t first, int64_t rows) {
    const int width = weighted == Weighted::alike ? a.channels_per_weight : a.columns;
    for (int begin = 0; begin < a.columns; begin += width) {
        if (width < lanes<T>) {
            pull_panel<pass, weighted, 1>(a, first, rows, {begin, 0, width});
            continue;
        }
        each_panel<T>(width, [&](auto size, int column) {
            const int last = std::min(column + (size.value - 1) * lanes<T>, width - lanes<T>) - column;
            pull_panel<pass, weighted, size.value>(a, first, rows, {begin + column, last, 0});
        });
    }
}

template <typename T, typename Visit>
void over_rows(const Aggregate<T>& a, const Visit& visit) {
    Chunks(a.rowptr, a.num_rows, many).run(a.num_threads, [&] { return [&](int64_t, int64_t row, int rows) { visit(row, rows); }; });
}

template <Pass pass, typename T>
void pull_pass(const Aggregate<T>& a) {
    over_rows(a, [&](int64_t row, int rows) {
        if (a.weight == nullptr) pull_rows<pass, Weighted::no>(a, row, rows);
        else if (a.channels_per_weight == 1) pull_rows<pass, Weighted::each>(a, row, rows);
        else pull_rows<pass, Weighted::alike>(a, row, rows);
    });
}

template <typename T>
void pull(const Aggregate<T>& a, Pass pass) {
    switch (pass) {
        case Pass::sum: return pull_pass<Pass::sum>(a);
        case Pass::mean: return pull_pass<Pass::mean>(a);
        case Pass::max: return pull_pass<Pass::max>(a);
        case Pass::ties: return pull_pass<Pass::ties>(a);
        case Pass::max_backward: return pull_pass<Pass::max_backward>(a);
    }
}

template <typename T>
void weight_gradients(const Aggregate<T>& a) {
    const int each = a.channels_per_weight, heads = a.columns / each;
    over_rows(a, [&](int64_t first, int rows) {
        for (int64_t i = first; i < first + rows; i++) {
            const T *grad = a.grad + i * a.columns, *largest = a.own == nullptr ? nullptr : a.own + i * a.columns;
            for (int64_t e = a.rowptr[i]; e < a.rowptr[i + 1]; e++) {
                const T *x = a.pulled + int64_t{a.col[e]} * a.columns, *w = a.weight + int64_t{a.edge[e]} * heads;
                T* out = a.out + int64_t{a.edge[e]} * heads;
                if (each == 1) {
                    for (int c = 0; c < heads; c++) out[c] = largest == nullptr || w[c] * x[c] == largest[c] ? x[c] * grad[c] : T(0);
                    continue;
                }
                for (int head = 0; head < heads; head++) {
                    const int begin = head * each;
                    if (largest == nullptr) {
                        out[head] = dot(x + begin, grad + begin, each);
                        continue;
                    }
                    T total = 0;
                    for (int c = begin; c < begin + each; c++) total += w[head] * x[c] == largest[c] ? x[c] * grad[c] : T(0);
                    out[head] = total;
                }
            }
        }
    });
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
