// Statics in a library: constructed before the program's and destroyed after them (see
// process_exit.cpp).
#include "exit_library.h"

#include <string>
#include <vector>

namespace {

std::vector<std::string> kept;

}  // namespace

void library_keep(std::size_t blocks) { kept.assign(blocks, std::string(100, 'k')); }
