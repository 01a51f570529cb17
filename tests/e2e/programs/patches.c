/* A library that writes a jump over the first instructions of mmap, as memory hooks do, is refused and goes on without. */
#define _GNU_SOURCE
#include "e2e.h"
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>

int main(void) {
    uintptr_t code = (uintptr_t)dlsym(RTLD_DEFAULT, "mmap") & ~4095ul;
    errno = 0;
    int patched = mprotect((void *)code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    if (getenv("ATOLL_EXPECTED") != NULL)
        CHECK(patched == -1 && errno == EACCES);
    return verdict();
}
