// A picture of the engine's memory in a process: on a terminal, as JSON, and as a page for a
// browser.
#pragma once

#include "common/json_line.h"
#include "inspect/report.h"

namespace ts {

// The terminal's columns, or the usual number if it does not report any.
std::size_t terminal_columns();
std::size_t terminal_rows();

// Follows the environment variable NO_COLOR.
bool forbids_colours();

// Prints a map to standard output, with enough pages per character to fit `rows` rows of `columns`,
// and a legend.
void print_map(const Account& account, const List<MapPiece>& map, std::size_t columns,
               std::size_t rows, bool has_colours, const char* end_of_line);
// The classes of slabs: how full they are, and what keeps the sparse ones.
void print_slabs(const List<MapPiece>& map);
// The fields of a map, within an object.
void add_map(JsonLine& line, const Account& account, const List<MapPiece>& map,
             const StrandedSites& sites);
// Returns 0, or an error number.
int write_map_page(const char* path, const Report& report, const StrandedSites& sites,
                   const List<MapPiece>& map);

}  // namespace ts
