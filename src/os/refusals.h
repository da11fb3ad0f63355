// Between the requests for memory that the system refused and what is said about it. Inside os/.
#pragma once

namespace ts::os {

// A request for memory failed with ENOMEM.
void note_refusal() noexcept;

}  // namespace ts::os
