// Calls every exported function of a drop-in library, at moments when programs rarely call any:
// before constructors, in the last destructors. It allocates nothing itself and uses no stdio, so
// that any failure is the allocator's.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Calls the functions for which `find` returns an address. Returns null if all keep their promises,
// else the name of one that does not. `*called` counts the functions.
const char* use_every_function(void* (*find)(const char* name), unsigned* called);

// For use_every_function: what the program itself would call by that name, if it is the tested
// library's.
void* find_in_program(const char* name);

#ifdef __cplusplus
}
#endif
