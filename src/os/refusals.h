// Counts refused requests for memory, for explain_refusal() (os.h). For use inside os/.
#pragma once

namespace ts::os {

// Call this when a request for memory failed with ENOMEM.
void note_refusal() noexcept;

}  // namespace ts::os
