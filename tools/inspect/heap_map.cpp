// See heap_map.h.
#include "inspect/heap_map.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "common/system.h"
#include "os/atomic_file.h"

// The HTML page, from a file of its own: what precedes and follows the data.
asm(R"(
  .section .rodata
  .global map_page, map_page_end
  .hidden map_page, map_page_end
map_page:
  .incbin ")" TSMALLOC_MAP_PAGE R"("
map_page_end:
  .previous
)");
extern "C" const char map_page[];
extern "C" const char map_page_end[];

namespace ts {
namespace {

// The meaning of a character of the map.
enum CellKind : std::uint8_t { full, half, sparse, large, kept, absent, cell_kinds };
constexpr struct {
  char character;
  const char* colour;
  const char* meaning;
} legend[cell_kinds] = {
    {'#', "\033[32m", "slabs more than 3/4 used"},
    {'=', "\033[33m", "slabs more than 1/4 used"},
    {'-', "\033[31m", "sparse slabs, at most 1/4 used"},
    {'L', "\033[36m", "large blocks"},
    {'f', "\033[35m", "free, resident"},
    {'.', "\033[90m", "not resident: purged, or not touched"},
};

CellKind cell_kind_of(const MapPiece& piece) {
  if (piece.kind == PieceKind::large) return large;
  if (piece.kind != PieceKind::slab) return kept;
  if (piece.is_sparse()) return sparse;
  return piece.used * 4 > piece.blocks() * 3 ? full : half;
}

struct Cell {
  std::size_t bytes[cell_kinds];
};

winsize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = {};
  return size;
}

}  // namespace

std::size_t terminal_columns() {
  const winsize size = terminal_size();
  return size.ws_col != 0 ? size.ws_col : 80;
}

std::size_t terminal_rows() {
  const winsize size = terminal_size();
  return size.ws_row != 0 ? size.ws_row : 24;
}

bool forbids_colours() {
  const char* const asks = std::getenv("NO_COLOR");
  return asks != nullptr && *asks != '\0';
}

void print_map(const Account& account, const List<MapPiece>& map, std::size_t columns,
               std::size_t rows, bool has_colours, const char* end_of_line) {
  constexpr std::size_t address_columns = 15;
  constexpr std::size_t min_width = 16;
  const std::size_t width =
      (std::max(columns, address_columns + min_width) - address_columns) & -min_width;
  const std::size_t page_count = account.mapped / engine::page_bytes;
  std::size_t pages_of_cell = 1;
  while (page_count > pages_of_cell * width * rows) pages_of_cell *= 2;
  List<Cell> cells;
  cells.fill(page_count / pages_of_cell + 1);
  Cell sum{};
  for (const MapPiece& piece : map) {
    const CellKind look = cell_kind_of(piece);
    for (std::size_t at = piece.page; at < std::min(piece.page + piece.pages, page_count);) {
      const std::size_t cell = at / pages_of_cell;
      const std::size_t next = std::min(piece.page + piece.pages, (cell + 1) * pages_of_cell);
      const std::size_t present = (next - at) * piece.resident / piece.pages;
      for (Cell* const each : {&cells[cell], &sum}) {
        each->bytes[look] += present;
        each->bytes[absent] += (next - at) * engine::page_bytes - present;
      }
      at = next;
    }
  }
  std::printf("One character is %zu KiB:%s", pages_of_cell * engine::page_bytes >> 10, end_of_line);
  for (std::size_t i = 0; i * pages_of_cell < page_count; ++i) {
    if (i % width == 0)
      std::printf("%s%013zx  ", i == 0 ? "" : end_of_line,
                  account.base + i * pages_of_cell * engine::page_bytes);
    const std::size_t* const bytes = cells[i].bytes;
    const auto look = std::max_element(bytes, bytes + cell_kinds) - bytes;
    std::printf("%s%c%s", has_colours ? legend[look].colour : "", legend[look].character,
                has_colours ? "\033[0m" : "");
  }
  std::printf("%s%s", end_of_line, end_of_line);
  for (std::size_t look = 0; look < cell_kinds; ++look)
    std::printf("%s%c%s%12.1f MiB  %s%s", has_colours ? legend[look].colour : "",
                legend[look].character, has_colours ? "\033[0m" : "", mib(sum.bytes[look]),
                legend[look].meaning, end_of_line);
}

void print_slabs(const List<MapPiece>& map) {
  constexpr std::size_t shown = 12;
  struct Class {
    unsigned number;
    std::size_t slabs, resident, used, blocks, quarters[4], pinning, pinning_ended, pinned;
  } classes[engine::class_count] = {};
  for (const MapPiece& piece : map) {
    if (piece.kind != PieceKind::slab) continue;
    Class& c = classes[piece.size_class];
    c.number = piece.size_class;
    ++c.slabs;
    c.resident += piece.resident;
    c.used += piece.used;
    c.blocks += piece.blocks();
    const std::size_t used = std::min<std::size_t>(piece.used, piece.blocks());
    ++c.quarters[used == 0 ? 0 : (used * 4 - 1) / piece.blocks()];
    if (!piece.is_sparse()) continue;
    const std::size_t bytes = used * engine::size_classes[piece.size_class].block_bytes;
    c.pinning += used;
    c.pinning_ended += piece.is_ended ? used : 0;
    c.pinned += piece.resident - std::min(piece.resident, bytes);
  }
  std::sort(std::begin(classes), std::end(classes),
            [](const Class& a, const Class& b) { return a.resident > b.resident; });
  std::printf(
      "\nSlabs by block size, and how many are up to 1/4, 1/2, 3/4 and 4/4 used; for the "
      "sparse\nones, their free memory and the number of blocks that keep it from being purged:\n"
      "   bytes    slabs       MiB   used     <=1/4     <=1/2     <=3/4     <=4/4   free MiB   "
      "kept by\n");
  std::size_t others = 0;
  for (const Class& c : classes) {
    if (c.slabs == 0) break;
    if (&c - classes >= static_cast<std::ptrdiff_t>(shown)) {
      ++others;
      continue;
    }
    std::printf(
        "%8u %8zu %9.1f %5.0f%% %9zu %9zu %9zu %9zu %10.1f %9zu",
        engine::size_classes[c.number].block_bytes, c.slabs, mib(c.resident),
        100 * static_cast<double>(c.used) / static_cast<double>(std::max<std::size_t>(c.blocks, 1)),
        c.quarters[0], c.quarters[1], c.quarters[2], c.quarters[3], mib(c.pinned), c.pinning);
    if (c.pinning_ended != 0) std::printf(", %zu of ended threads' heaps", c.pinning_ended);
    std::printf("\n");
  }
  if (others != 0)
    std::printf("   ... and %zu smaller class%s: --json lists all\n", others,
                others == 1 ? "" : "es");
}

void add_map(JsonLine& line, const Account& account, const List<MapPiece>& map,
             const StrandedSites& sites) {
  line.add("base", account.base);
  line.add("mapped_bytes", account.mapped);
  line.add("page_bytes", engine::page_bytes);
  line.begin_list("pieces");
  for (const MapPiece& piece : map) {
    line.begin_list();
    line.add(piece.page);
    line.add(piece.pages);
    line.add(static_cast<unsigned>(piece.kind));
    line.add(piece.resident);
    if (piece.kind == PieceKind::slab) {
      line.add(engine::size_classes[piece.size_class].block_bytes);
      line.add(piece.blocks());
      line.add(piece.used);
      line.add(piece.is_ended ? 1 : 0);
      line.add(sites.in_slab(piece.page));
    }
    line.end_list();
  }
  line.end_list();
}

int write_map_page(const char* path, const Report& report, const StrandedSites& sites,
                   const List<MapPiece>& map) {
  constexpr std::string_view mark = "@DATA@";
  os::AtomicFile file{path};
  if (file.error() != 0) return file.error();
  const char* const data = std::search(map_page, map_page_end, mark.begin(), mark.end());
  const auto write = [&](const char* begin, const char* end) {
    return write_all(file.descriptor(), begin, static_cast<std::size_t>(end - begin));
  };
  int error = write(map_page, data);
  if (error == 0) error = print_json(report, sites, &map, file.descriptor());
  if (error == 0) error = write(data + mark.size(), map_page_end);
  return error != 0 ? error : file.keep();
}

}  // namespace ts
