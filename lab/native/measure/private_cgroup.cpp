// Finding our memory cgroup (version 1 or 2) and making a child of it; see private_cgroup.h.
#include "measure/private_cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/system.h"

namespace ts {
namespace {

constexpr std::size_t max_mount_fields = 64;

bool has_item(char* comma_list, const char* item) {
  char* rest = nullptr;
  for (char* each = strtok_r(comma_list, ",", &rest); each != nullptr;
       each = strtok_r(nullptr, ",", &rest)) {
    if (std::strcmp(each, item) == 0) return true;
  }
  return false;
}

struct Membership {
  bool is_version_1 = false;
  char path[PATH_MAX] = {};  // as the hierarchy sees it; empty: none found
};

// Lines of /proc/self/cgroup are "id:controllers:path". A version 1 line that names the memory
// controller wins: then version 2, which is the line without controllers, does not have it.
Membership find_membership() {
  Membership membership;
  PieceReader lines{"/proc/self/cgroup"};
  while (char* line = lines.next('\n')) {
    char* const controllers = std::strchr(line, ':');
    char* const path = controllers != nullptr ? std::strchr(controllers + 1, ':') : nullptr;
    if (path == nullptr) continue;
    *path = '\0';
    const bool is_version_2 = controllers + 1 == path;
    const bool is_version_1 = !is_version_2 && has_item(controllers + 1, "memory");
    if (!is_version_1 && (!is_version_2 || membership.is_version_1)) continue;
    membership.is_version_1 = is_version_1;
    format(membership.path, sizeof membership.path, "%s", path + 1);
  }
  return membership;
}

// Lines of /proc/self/mountinfo are "id parent device root mount-point options [tag...] - type
// source super-options". The part of the hierarchy above `root` is not visible here, so it is cut
// off the membership's path.
bool directory_in_mount(char* line, const Membership& membership, char (&directory)[PATH_MAX]) {
  char* fields[max_mount_fields];
  std::size_t count = 0;
  std::size_t dash = 0;
  char* rest = nullptr;
  for (char* field = strtok_r(line, " ", &rest); field != nullptr && count < max_mount_fields;
       field = strtok_r(nullptr, " ", &rest)) {
    if (std::strcmp(field, "-") == 0) dash = count;
    fields[count++] = field;
  }
  if (dash < 5 || count < dash + 4) return false;
  const char* const type = fields[dash + 1];
  const bool is_wanted = membership.is_version_1 ? std::strcmp(type, "cgroup") == 0 &&
                                                       has_item(fields[dash + 3], "memory")
                                                 : std::strcmp(type, "cgroup2") == 0;
  if (!is_wanted) return false;
  const char* const root = std::strcmp(fields[3], "/") == 0 ? "" : fields[3];
  const std::size_t root_length = std::strlen(root);
  if (std::strncmp(membership.path, root, root_length) != 0) return false;
  const char* const below = membership.path + root_length;
  format(directory, sizeof directory, "%s%s", fields[4], std::strcmp(below, "/") == 0 ? "" : below);
  return true;
}

constexpr char name_prefix[] = "tsmalloc-measure-";  // and the number of the process that made it

// Removes the groups of processes that were killed before they could. One that is in use cannot be
// removed.
void remove_abandoned(const char* parent) {
  DIR* const groups = opendir(parent);
  if (groups == nullptr) return;
  while (const dirent* group = readdir(groups)) {
    const std::int64_t maker = number_after(group->d_name, name_prefix);
    const bool is_abandoned =
        maker > 0 && kill(static_cast<pid_t>(maker), 0) != 0 && errno == ESRCH;
    if (is_abandoned) unlinkat(dirfd(groups), group->d_name, AT_REMOVEDIR);
  }
  closedir(groups);
}

}  // namespace

bool PrivateCgroup::make_under(const char* parent, const char* peak_file) {
  remove_abandoned(parent);
  format(directory_, sizeof directory_, "%s/%s%d", parent, name_prefix, getpid());
  if (mkdir(directory_, 0755) != 0) {
    directory_[0] = '\0';
    return false;
  }
  char join_path[PATH_MAX + 64];
  format(join_path, sizeof join_path, "%s/cgroup.procs", directory_);
  format(peak_path_, sizeof peak_path_, "%s/%s", directory_, peak_file);
  // Version 2 makes a group without the memory controller where the parent does not delegate it:
  // then there is no peak file.
  if (access(peak_path_, R_OK) == 0) join_descriptor_ = open(join_path, O_WRONLY | O_CLOEXEC);
  if (join_descriptor_ < 0) remove();
  return join_descriptor_ >= 0;
}

PrivateCgroup::PrivateCgroup() {
  const Membership membership = find_membership();
  if (membership.path[0] == '\0') return;
  char parent[PATH_MAX];
  PieceReader mounts{"/proc/self/mountinfo"};
  while (char* line = mounts.next('\n')) {
    if (!directory_in_mount(line, membership, parent)) continue;
    if (make_under(parent, membership.is_version_1 ? "memory.max_usage_in_bytes" : "memory.peak")) {
      return;
    }
  }
}

PrivateCgroup::~PrivateCgroup() { remove(); }

std::int64_t PrivateCgroup::peak_bytes() const {
  if (join_descriptor_ < 0) return -1;
  PieceReader peak{peak_path_};
  const char* const text = peak.next('\n');
  return text != nullptr ? std::strtoll(text, nullptr, 10) : -1;
}

void PrivateCgroup::remove() {
  if (join_descriptor_ >= 0) close(join_descriptor_);
  join_descriptor_ = -1;
  if (directory_[0] == '\0') return;
  // A process that has been waited for may still be on its way out of the group.
  constexpr int attempts = 200;
  const timespec pause{.tv_sec = 0, .tv_nsec = ns_per_ms};
  for (int attempt = 0; attempt < attempts && rmdir(directory_) != 0 && errno == EBUSY; ++attempt) {
    nanosleep(&pause, nullptr);
  }
  directory_[0] = '\0';
}

}  // namespace ts
