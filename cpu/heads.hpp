// The columns of a row's heads in whole vectors, and numbers of heads spread over their columns.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "exponential.hpp"
#include "gather.hpp"
#include "memory.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
using Lanes = Vec<typename OfExponential<T>::Int>;  // numbers of lanes

// Returns the lanes Pick::lane(0), Pick::lane(1) and so on of two vectors, of which the second's are counted on from the first's.
template <typename Pick, typename T, size_t... I>
inline Vec<T> picked(const T*, Vec<T> a, Vec<T> b, std::index_sequence<I...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, Pick::lane(I)...);
#else
    return __builtin_shuffle(a, b, Lanes<T>{Pick::lane(I)...});
#endif
}

// The lanes from `first` on, `width` each, of every block of 2 * width lanes: those of the first vector and those of the second in turns.
template <int width, int first, int all>
struct InTurns {
    static constexpr int lane(int i) { return i / (2 * width) * (2 * width) + i % width + (i / width % 2 == 0 ? 0 : all) + first; }
};

// Adds up each of N vectors, a power of two. Lane h of the result is the sum of vector h, and the lanes repeat after N.
template <typename T, int N, int width = 1>
inline Vec<T> sums_of(Vec<T>* v) {
    constexpr int all = lanes<T>;
    constexpr auto every = std::make_index_sequence<all>{};
    constexpr const T* type = nullptr;
    if constexpr (width == all) {
        return v[0];
    } else {
#pragma GCC unroll 8
        for (int m = 0; m < (N > width ? N / width / 2 : 1); m++) {
            const Vec<T> a = v[N > width ? 2 * m : 0], b = v[N > width ? 2 * m + 1 : 0];
            v[m] = picked<InTurns<width, 0, all>>(type, a, b, every) + picked<InTurns<width, width, all>>(type, a, b, every);
        }
        return sums_of<T, N, 2 * width>(v);
    }
}

// Rows of heads * columns numbers, in whole vectors of `stride` numbers with zeros at the end.
template <typename T>
class Heads {
public:
    Heads(int heads, int columns, ptrdiff_t stride)
        : heads_(heads), each_(vectors<T>(columns)), together_(1), first_head_(new int[stride / lanes<T>]), head_in_(stride) {
        while (together_ < heads && together_ < lanes<T>) together_ *= 2;
        const int padded = (heads + together_ - 1) / together_ * together_;
        size_ = padded * each_ * lanes<T>;
        start_.reset(new int[padded * each_]());
        own_.reset(new Array<T>(size_));
        zero(own_->data(), size_);
        for (int h = 0; h < heads; h++) {
            for (int k = 0; k < each_; k++) {
                const int first = h * columns + k * lanes<T>, last = (h + 1) * columns;
                const int start = std::min(first, columns >= lanes<T> ? last - lanes<T> : int(stride) - lanes<T>);
                start_[h * each_ + k] = start;
                for (int c = first; c < last && c < start + lanes<T>; c++) (*own_)[(h * each_ + k) * lanes<T> + c - start] = T(1);
            }
        }
        for (int c = 0; c < stride; c++) {
            const int head = std::min(c / columns, heads - 1);
            if (c % lanes<T> == 0) first_head_[c / lanes<T>] = head;
            head_in_[c] = head - first_head_[c / lanes<T>];
        }
    }

    // How many numbers a row's heads take, one each, in whole vectors. Another vector of them may be read behind the last row.
    int stride() const { return vectors<T>(heads_) * lanes<T>; }
    // How many numbers the parts of a row are.
    int size() const { return size_; }

    // Writes a row head by head, with zeros in place of what belongs to other heads.
    void part(const T* row, T* parts) const {
        for (int k = 0; k * lanes<T> < size_; k++) store(parts + k * lanes<T>, where_positive<T>(load(own_->data() + k * lanes<T>), load_any(row + start_[k])));
    }

    // Writes, for each head, the sum over its columns of a row's parts times other(column, vector of columns).
    template <typename Other>
    void sums(const T* parts, T* to, const Other& other) const {
        if (each_ == 1) return sums_of_vectors<1>(parts, to, other);
        if (each_ == 2) return sums_of_vectors<2>(parts, to, other);
        return sums_of_vectors<0>(parts, to, other);
    }

    // Returns the numbers of the heads that a vector of columns belongs to.
    Vec<T> spread(const T* numbers, int column) const {
        const Vec<T> heads = load_any(numbers + first_head_[column / lanes<T>]);
        const Lanes<T> lane = *reinterpret_cast<const Lanes<T>*>(head_in_.data() + column);
#if defined(__clang__)
        Vec<T> v;
        for (int i = 0; i < lanes<T>; i++) v[i] = heads[lane[i]];
        return v;
#else
        return __builtin_shuffle(heads, lane);
#endif
    }

private:
    // E: the number of vectors of a head, or 0 for any.
    template <int E, typename Other>
    void sums_of_vectors(const T* parts, T* to, const Other& other) const {
        if (together_ == 1) return sums_together<1, E>(parts, to, other);
        if (together_ == 2) return sums_together<2, E>(parts, to, other);
        if constexpr (lanes<T> >= 4)
            if (together_ == 4) return sums_together<4, E>(parts, to, other);
        if constexpr (lanes<T> >= 8)
            if (together_ == 8) return sums_together<8, E>(parts, to, other);
        if constexpr (lanes<T> >= 16) sums_together<16, E>(parts, to, other);
    }

    template <int N, int E, typename Other>
    void sums_together(const T* parts, T* to, const Other& other) const {
        const int* start = start_.get();
        const int each = E > 0 ? E : each_;
        for (int head = 0; head < heads_; head += N, start += N * each, parts += N * each * lanes<T>) {
            Vec<T> of[N];
#pragma GCC unroll 16
            for (int h = 0; h < N; h++) {
                of[h] = load(parts + h * each * lanes<T>) * other(start[h * each]);
#pragma GCC unroll 2
                for (int k = 1; k < each; k++) of[h] += load(parts + (h * each + k) * lanes<T>) * other(start[h * each + k]);
            }
            store_any(to + head, sums_of<T, N>(of));
        }
    }

    int heads_, each_, together_, size_;  // each_: vectors of a head; together_: heads that are added up together
    std::unique_ptr<int[]> start_, first_head_;  // the column at which each vector of a head starts; the first head of each vector of columns
    std::unique_ptr<Array<T>> own_;              // 1 where a vector of a head has a column of its own
    Array<typename OfExponential<T>::Int> head_in_;  // of each column, counted from its vector's first
};

// Numbers for each head of each of some rows, all zero at first, with a vector of room at the end.
template <typename T>
class HeadNumbers {
public:
    HeadNumbers(int64_t rows, int stride) : stride_(stride), numbers_(rows * stride + lanes<T>) {}

    T* operator[](int64_t row) { return numbers_.data() + row * stride_; }
    Vec<T> at(int64_t row, int head) { return load_any((*this)[row] + head); }
    void add(int64_t row, int head, Vec<T> v) { store_any((*this)[row] + head, at(row, head) + v); }

private:
    int stride_;
    std::vector<T> numbers_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
