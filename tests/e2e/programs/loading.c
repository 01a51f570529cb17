/* dlopen before the first region, and between regions; its globals, regions and thread-local data. ARGV[1]: the library. */
#include "e2e.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    int early = argc > 2 && !strcmp(argv[2], "early");
    uint64_t *big = calloc(2 << 20, 8);
    if (!early) {
#pragma omp parallel for
        for (int i = 0; i < 2 << 20; i++) big[i] = (uint64_t)i;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { printf("%s\n", dlerror()); return 1; }
    uint64_t (*sum)(void) = (uint64_t (*)(void))dlsym(library, "library_sum");
    int (*local)(int) = (int (*)(int))dlsym(library, "library_local");
    printf("%llu\n", (unsigned long long)sum());
    printf("%llu\n", (unsigned long long)sum());
#pragma omp parallel
    {
        CHECK(local(0) == 11);
        local(100 + omp_get_thread_num());
#pragma omp barrier
        CHECK(local(0) == 100 + omp_get_thread_num());
    }
    uint64_t *array = dlsym(library, "library_array");
    uint64_t total = 0;
#pragma omp parallel for reduction(+ : total)
    for (int i = 0; i < 2 << 20; i++) total += array[i];
    printf("%llu\n", (unsigned long long)total);
    return verdict();
}
