// For LD_AUDIT: the dynamic linker calls it when everything is loaded, but before any constructor
// of the program's libraries. It then calls every function of the program's malloc, which it finds
// in the symbol tables, since it lives in a namespace of its own. It writes "ok" to standard
// output, or what went wrong.
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "every_function.h"

// The objects of the program's namespace, in search order.
enum { most_objects = 64 };
static const struct link_map* objects[most_objects];
static unsigned object_count;

typedef struct Symbols {
  const Elf64_Sym* table;
  const char* names;
  uint32_t count;
} Symbols;

// The highest number in the hash table's chains, plus one.
static uint32_t count_symbols(const uint32_t* hash) {
  const uint32_t buckets = hash[0];
  const uint32_t first = hash[1];
  const uint32_t* const bucket = hash + 4 + hash[2] * 2;
  const uint32_t* const chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

static Symbols symbols_of(const struct link_map* object) {
  Symbols symbols = {NULL, NULL, 0};
  for (const Elf64_Dyn* entry = object->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols.table = (const Elf64_Sym*)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) symbols.names = (const char*)entry->d_un.d_ptr;
    // The vdso's addresses are not relocated.
    if (entry->d_tag == DT_GNU_HASH && entry->d_un.d_ptr > object->l_addr)
      symbols.count = count_symbols((const uint32_t*)entry->d_un.d_ptr);
  }
  return symbols;
}

static void* find_in_object(const struct link_map* object, const char* name) {
  const Symbols symbols = symbols_of(object);
  for (uint32_t s = 0; s < symbols.count; ++s) {
    const Elf64_Sym* const symbol = &symbols.table[s];
    if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
        strcmp(symbols.names + symbol->st_name, name) == 0)
      return (void*)(object->l_addr + symbol->st_value);
  }
  return NULL;
}

// In the first object that has a malloc.
static void* find_beside_malloc(const char* name) {
  unsigned i = 0;
  while (i < object_count && find_in_object(objects[i], "malloc") == NULL) ++i;
  return i < object_count ? find_in_object(objects[i], name) : NULL;
}

unsigned la_version(unsigned version) { return version; }

unsigned la_objopen(struct link_map* object, Lmid_t namespace_id, uintptr_t* cookie) {
  (void)cookie;
  const int is_vdso = strstr(object->l_name, "vdso") != NULL;
  if (namespace_id == LM_ID_BASE && !is_vdso && object_count < most_objects)
    objects[object_count++] = object;
  return 0;
}

void la_preinit(uintptr_t* cookie) {
  (void)cookie;
  unsigned called = 0;
  const char* const broken = use_every_function(find_beside_malloc, &called);
  const char* const said = broken != NULL ? broken : called >= 20 ? "ok" : "too few functions";
  if (write(STDOUT_FILENO, said, strlen(said)) < 0) _exit(3);
}
