// The distinct rows among the rows of a tile. In the first layers atoms of one kind, and bonds with equal surroundings, have equal rows, of
// which a product need see only one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gemm.hpp"
#include "memory.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

// Rows of a tile. The columns from `width` to `stride`, which fill whole vectors, are zeros.
template <typename T>
struct TileRows {
    T* data;
    ptrdiff_t stride;
    int width, count;

    explicit operator bool() const { return data != nullptr; }
    T* operator[](int64_t row) const { return data + row * stride; }
};

template <typename T>
class EqualRows {
public:
    // Reserves room for tiles of at most max_rows of up to `widest` columns.
    EqualRows(int max_rows, int widest)
        : slots_(slots_for(max_rows)), table_(slots_), first_(max_rows), number_(max_rows), hashes_(max_rows),
          rows_((int64_t{max_rows} + slack_rows) * widest), results_((int64_t{max_rows} + slack_rows) * widest) {
        zero(rows_.data(), (int64_t{max_rows} + slack_rows) * widest);
        zero(results_.data(), (int64_t{max_rows} + slack_rows) * widest);
    }

    // Returns the distinct rows in the order in which they first come, or none if a product with `columns` columns gains nothing by them.
    TileRows<T> distinct(const TileRows<T>& rows, int columns) const {
        const TileRows<T> none{nullptr, 0, 0, 0}, found{rows_.data(), rows.stride, rows.width, find(rows, columns)};
        if (found.count == 0) return none;
        for (int i = 0; i < found.count; i++) std::memcpy(found[i], rows[first_[i]], rows.stride * sizeof(T));
        return found;
    }

    // Returns room for a result of each of the rows that were found last.
    TileRows<T> results(const TileRows<T>& distinct, const TileRows<T>& of_all) const {
        return {results_.data(), of_all.stride, of_all.width, distinct.count};
    }

    // Returns which of the distinct rows that were found last a row equals.
    int number(int row) const { return number_[row]; }

private:
    typedef uint32_t Words __attribute__((vector_size(MOLGCN_VECTOR_BYTES), may_alias));
    static constexpr int64_t least_work = 1 << 14;  // multiply-adds of a row that cost clearly more than finding its equals

    static int slots_for(int max_rows) {
        int slots = 16;
        while (slots < 2 * max_rows) slots *= 2;
        return slots;
    }

    // Numbers the distinct rows and returns how many there are; 0 if a product should take all rows.
    int find(const TileRows<T>& rows, int columns) const {
        if (int64_t{rows.width} * columns < least_work) return 0;
        std::fill_n(table_.data(), slots_, -1);
        int count = 0;
        for (int i = 0; i < rows.count; i++) {
            const uint64_t hash = hash_of(rows[i], rows.stride);
            int slot = int(hash >> 32) & (slots_ - 1);
            while (table_[slot] >= 0 && !(hashes_[table_[slot]] == hash && equal(rows, first_[table_[slot]], i))) slot = (slot + 1) & (slots_ - 1);
            if (table_[slot] < 0) {
                table_[slot] = count;
                hashes_[count] = hash;
                first_[count++] = i;
            }
            number_[i] = table_[slot];
        }
        return count <= rows.count - rows.count / 8 ? count : 0;
    }

    static bool equal(const TileRows<T>& rows, int a, int b) { return std::memcmp(rows[a], rows[b], rows.stride * sizeof(T)) == 0; }

    static uint64_t hash_of(const T* row, ptrdiff_t stride) {
        Words words{};
        for (ptrdiff_t c = 0; c < stride; c += lanes<T>) words = (words << 7 | words >> 25) + *reinterpret_cast<const Words*>(row + c);
        uint64_t hash = 0;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
        return hash;
    }

    int slots_;
    Array<int> table_, first_, number_;
    Array<uint64_t> hashes_;
    Array<T> rows_, results_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
