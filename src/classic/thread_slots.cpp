#include "classic/thread_slots.h"

#include "classic/leaving_memory.h"
#include "os/fork_lock.h"
#include "os/os.h"

namespace ts::classic {
namespace {

struct Entry {
  void* state;
  std::uint32_t serial;
};

// A thread's table. Untouched pages cost nothing, so it has room for every heap.
inline constexpr std::size_t table_bytes = 16 * 1024;
inline constexpr std::size_t max_slots = table_bytes / sizeof(Entry) - 1;

struct Table {
  Table* previous;  // tables_lock: the list of all tables
  Table* next;
  Entry entries[max_slots];  // own; others only under tables_lock, after the thread's last use
};
static_assert(sizeof(Table) <= table_bytes);

// The heap that a slot number belongs to; tables_lock.
struct Slot {
  void* heap;
  ThreadSlots::Retire retire;
  std::uint32_t serial;
};

constinit ForkLock tables_lock;
constinit Table* tables = nullptr;
constinit Slot slots[max_slots]{};
constinit std::uint32_t next_serial = 1;

constinit Table no_table{};  // stands in for the table of a thread that is ending; never written
constinit thread_local Table* this_table = nullptr;

std::atomic_ref<std::uint32_t> any(std::uint32_t& value) noexcept {
  return std::atomic_ref<std::uint32_t>{value};
}

void link_table(Table* table) noexcept {
  table->previous = nullptr;
  table->next = tables;
  if (tables != nullptr) tables->previous = table;
  tables = table;
}

void unlink_table(Table* table) noexcept {
  (table->previous != nullptr ? table->previous->next : tables) = table->next;
  if (table->next != nullptr) table->next->previous = table->previous;
}

// Returns the states in a table to their heaps, and the table to the system.
void remove_table(Table* table) noexcept {
  const GivesBack gives_back;
  {
    const Guard guard{tables_lock.mutex};
    for (std::size_t i = 0; i < max_slots && slots[i].serial != 0; ++i) {
      const Entry& entry = table->entries[i];
      if (entry.state != nullptr && entry.serial == slots[i].serial && slots[i].heap != nullptr)
        slots[i].retire(slots[i].heap, entry.state);
    }
    unlink_table(table);
  }
  os::unmap_unused(table, table_bytes);
}

void at_thread_exit(void* argument) noexcept {
  this_table = &no_table;
  remove_table(static_cast<Table*>(argument));
}

Table* make_table() noexcept {
  auto* const table = static_cast<Table*>(os::map(table_bytes));
  if (table == nullptr) return nullptr;
  {
    const Guard guard{tables_lock.mutex};
    link_table(table);
  }
  // Registering may itself allocate; that call must find the table in place, and leaves states in
  // it.
  this_table = table;
  if (os::call_at_thread_exit(at_thread_exit, table)) return table;
  this_table = nullptr;
  remove_table(table);
  return nullptr;
}

}  // namespace

void* ThreadSlots::get() const noexcept {
  const Table* const table = this_table;
  // acquire: pairs with open(), which publishes serial_ before the slot number
  const std::uint32_t slot_plus_one =
      any(const_cast<std::uint32_t&>(slot_plus_one_)).load(std::memory_order_acquire);
  if (table == nullptr || slot_plus_one == 0) return nullptr;
  const Entry& entry = table->entries[slot_plus_one - 1];
  return entry.serial == serial_ ? entry.state : nullptr;
}

bool ThreadSlots::make_ready() noexcept {
  if (this_table == &no_table || !open()) return false;
  return this_table != nullptr || make_table() != nullptr;
}

void ThreadSlots::set(void* state) noexcept {
  this_table->entries[any(slot_plus_one_).load(std::memory_order_relaxed) - 1] = {state, serial_};
}

// Gets this heap a slot number, once.
bool ThreadSlots::open() noexcept {
  if (any(slot_plus_one_).load(std::memory_order_acquire) != 0) return true;
  const Guard guard{tables_lock.mutex};
  if (any(slot_plus_one_).load(std::memory_order_relaxed) != 0) return true;
  for (std::uint32_t i = 0; i < max_slots; ++i) {
    if (slots[i].heap != nullptr) continue;
    serial_ = next_serial++;
    slots[i] = {heap_, retire_, serial_};
    any(slot_plus_one_).store(i + 1, std::memory_order_release);
    return true;
  }
  return false;
}

void ThreadSlots::close() noexcept {
  const Guard guard{tables_lock.mutex};
  const std::uint32_t slot_plus_one = any(slot_plus_one_).load(std::memory_order_relaxed);
  if (slot_plus_one == 0) return;
  slots[slot_plus_one - 1].heap = nullptr;
  any(slot_plus_one_).store(0, std::memory_order_relaxed);
}

void ThreadSlots::fork_prepare() noexcept { tables_lock.prepare(); }

void ThreadSlots::fork_parent() noexcept { tables_lock.parent(); }

void ThreadSlots::fork_child() noexcept {
  if (!tables_lock.child()) return;
  // The other threads' tables: their heaps have taken over, or given up, the states in them.
  for (Table* table = tables; table != nullptr;) {
    Table* const next = table->next;
    if (table != this_table) {
      unlink_table(table);
      os::unmap_unused(table, table_bytes);
    }
    table = next;
  }
}

}  // namespace ts::classic
