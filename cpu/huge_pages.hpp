// Huge pages for memory of many megabytes.
#pragma once

#include <cstdint>

namespace molgcn {

// Asks for huge pages, for memory that malloc maps anew for every batch. Faults of 4 KB pages took longer than the layers.
void use_huge_pages(uintptr_t begin, int64_t bytes);

}  // namespace molgcn
