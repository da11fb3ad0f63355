// A picture of the engine's memory in a process: on a terminal, as JSON, and as a page for a
// browser.
#pragma once

#include "common/json_line.h"
#include "inspect/report.h"

namespace ts {

// Of the terminal; as many as terminals have where it does not say.
std::size_t terminal_columns();
std::size_t terminal_rows();

// By the variable NO_COLOR.
bool forbids_colours();

// A character for so many pages that `rows` rows of `columns` are enough, and what the characters
// mean. To standard output.
void print_map(const Account& account, const List<MapPiece>& map, std::size_t columns,
               std::size_t rows, bool has_colours, const char* end_of_line);
// The classes of slabs: how full they are, and what keeps the sparse ones.
void print_slabs(const List<MapPiece>& map);
// The fields of a map, within an object.
void add_map(JsonLine& line, const Account& account, const List<MapPiece>& map,
             const StrandedSites& sites);
// 0, or the number of an error.
int write_map_page(const char* path, const Report& report, const StrandedSites& sites,
                   const List<MapPiece>& map);

}  // namespace ts
