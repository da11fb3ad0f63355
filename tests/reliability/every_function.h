// Every function that a drop-in library of ours exports, called once or more, at moments when a
// program rarely calls any: before constructors, in the last destructors. It allocates nothing
// itself and uses no stdio, so that what fails is the allocator.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Calls the functions that `find` has addresses for, by name; null if all keep their promises, else
// the name of one that does not. `*called` counts the functions.
const char* use_every_function(void* (*find)(const char* name), unsigned* called);

// What the program itself would call by that name, if it is the tested library's; for
// use_every_function.
void* find_in_program(const char* name);

#ifdef __cplusplus
}
#endif
