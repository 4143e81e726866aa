// Prefetches rows that are read soon: those of large graphs lie in memory, not in cache.
#pragma once

#include <cstdint>

namespace molgcn {
namespace MOLGCN_ISA {

constexpr int32_t ahead = 8;  // entries

template <typename T>
inline void prefetch_row(const T* row, int columns) {
    for (int k = 0; k < columns; k += int(64 / sizeof(T))) __builtin_prefetch(row + k);
}

}  // namespace MOLGCN_ISA
}  // namespace molgcn
