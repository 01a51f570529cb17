/* A library whose destructor unmaps many mappings, each a range of its own, as OpenBLAS does with its buffers at the end of the process. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

enum { COUNT = 3000 };

static char *mapped[COUNT];

static size_t bytes(int i) {
    return 65536 + i % 7 * 4096;
}

int map_them(void) {
    for (int i = 0; i < COUNT; i++) {
        mapped[i] = mmap(NULL, bytes(i), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mapped[i][0] = 1;
    }
    return COUNT;
}

__attribute__((destructor)) static void unmap_them(void) {
    for (int odd = 0; odd < 2; odd++)
        for (int i = odd; i < COUNT; i += 2)
            munmap(mapped[i], bytes(i));
    puts("unmapped");
    fflush(stdout);
}
