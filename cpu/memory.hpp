// Arrays on cache lines. Each thread zeroes its own part, so that pages lie near it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "huge_pages.hpp"

namespace molgcn {
namespace MOLGCN_ISA {

template <typename T>
void zero(T* data, int64_t size) {
    std::memset(static_cast<void*>(data), 0, size * sizeof(T));
}

template <typename T>
class Array {
public:
    explicit Array(int64_t size) {
        const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
        data_ = static_cast<T*>(std::aligned_alloc(64, bytes + 64));
        if (data_ == nullptr) throw std::bad_alloc();
        use_huge_pages(reinterpret_cast<uintptr_t>(data_), int64_t(bytes));
    }
    ~Array() { std::free(data_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* data() const { return data_; }
    T& operator[](int64_t i) const { return data_[i]; }

private:
    T* data_;
};

}  // namespace MOLGCN_ISA
}  // namespace molgcn
