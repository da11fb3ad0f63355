// Refused requests for memory, counted for explain_refusal() (os.h). Inside os/.
#pragma once

namespace ts::os {

// A request for memory failed with ENOMEM.
void note_refusal() noexcept;

}  // namespace ts::os
