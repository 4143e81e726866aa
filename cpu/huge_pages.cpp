#include "huge_pages.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace molgcn {

void use_huge_pages(uintptr_t begin, int64_t bytes) {
#if defined(__linux__)
    constexpr uintptr_t page = 2 << 20;
    const uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // a hint: failing is no error
#endif
}

}  // namespace molgcn
