/* Memory that is protected by libc's own mprotect, found by libc's handle as Python's ctypes does, and unmapped: whoever has it next can
 * write to it. */
#include "check.h"
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 300 };

int main(void) {
    void *libc = dlopen("libc.so.6", RTLD_LAZY);
    int (*protect)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(libc, "mprotect");
    CHECK(libc && protect);
    long written = 0;
    for (int pages = 1; pages <= PAGES; pages += 13) {
        char *one = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(one, 1, pages * PAGE);
        CHECK(protect(one, pages * PAGE - 7, PROT_READ | PROT_EXEC) == 0);
        CHECK(munmap(one, pages * PAGE) == 0);
        char *next = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *more = malloc(pages * PAGE);
#pragma omp parallel for reduction(+ : written)
        for (int i = 0; i < pages; i++) {
            written += next[i * PAGE] == 0;
            memset(next + i * PAGE, 2, PAGE);
            memset(more + i * PAGE, 3, PAGE);
        }
        written -= pages;
        free(more);
        munmap(next, pages * PAGE);
    }
    CHECK(written == 0);
    return result();
}
