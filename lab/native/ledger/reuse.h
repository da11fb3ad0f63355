// Which memory has been handed out before.
//
// Why it exists: an allocator that hands out used memory again needs less, and finds it in the
// caches; how much it reuses is the plainest figure of its policy. What it refuses to do: count a
// byte twice within one block, or look closer than 8 bytes.
#pragma once

#include <cstdint>

namespace ts {

// Notes that [begin, end) is handed out, and returns how many of its bytes had been before.
std::uint64_t note_handed_out(std::uintptr_t begin, std::uintptr_t end);

}  // namespace ts
