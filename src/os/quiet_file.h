// Opening files of our own while the program opens and closes its own. For use inside os/.
#pragma once

namespace ts::os {

// Returns a descriptor, or a negative value if the file cannot be opened. Programs that close every
// descriptor and then open files get the lowest numbers, so ours is a high one if the limit allows
// it; otherwise closing it might close a file of the program. (It still may, if the program does so
// between these calls.)
long open_quietly(const char* path) noexcept;

}  // namespace ts::os
