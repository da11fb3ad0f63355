// What a file with a fuzz target defines, for libFuzzer and for generated_inputs.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

// libFuzzer's entry points: before the first input, and for each.
extern "C" int LLVMFuzzerInitialize(int* argument_count, char*** arguments);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ts::fuzz {

// Prints what the inputs have tried; false if they missed something that they exist for.
bool report_totals();

}  // namespace ts::fuzz
