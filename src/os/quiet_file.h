// Files that are read while the program goes on, which opens and closes its own. Inside os/.
#pragma once

namespace ts::os {

// The file's number, below 0 if it cannot be opened. Programs that
// close all numbers, and open files of their own, get the lowest ones; so ours is a higher one, if
// the limit allows it. Else closing it might close the program's file. (It still may, if the
// program does so between these calls.)
long open_quietly(const char* path) noexcept;

}  // namespace ts::os
