// Memory of the ledger's own.
//
// Why it exists: the books must not lie in the heap that they are about, nor lie between its
// mappings more often than they have to. What it refuses to do: give anything back.
#pragma once

#include <cstddef>

namespace ts {

// Zeroed, aligned to 16; null when there is none. Any thread, at any time; takes no lock.
void* own_memory(std::size_t bytes);

}  // namespace ts
