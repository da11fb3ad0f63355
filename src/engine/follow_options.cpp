#include "engine/follow_options.h"

#include "core/hooks.h"
#include "features/background/background_thread.h"
#include "features/background/rest.h"
#include "features/hugepages/huge_pages.h"
#include "features/limits/limits.h"
#include "features/profile/sampling_switch.h"
#include "os/options.h"

namespace ts::engine {

void follow_options_soon() noexcept {
  follow_limit_options();
  request_profile_option();
  if (current_options.huge_pages == HugePages::never) refuse_all_huge_pages();
  follow_background_option();
  wake_background_thread();  // its rest depends on TSMALLOC_PURGE_DELAY
}

void follow_options() noexcept {
  follow_options_soon();
  look_at_limits();
  hooks::attend();
}

}  // namespace ts::engine
