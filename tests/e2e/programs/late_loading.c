/* Libraries with thread-local variables that are loaded after workers exist, closed, and loaded again. ARGV[1], ARGV[2]: two of them. */
#include "e2e.h"
#include <dlfcn.h>

static void use(const char *name, int close) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) { printf("%s\n", dlerror()); exit(1); }
    int64_t (*sum)(void) = (int64_t (*)(void))dlsym(library, "late_sum");
    void (*set)(int64_t) = (void (*)(int64_t))dlsym(library, "late_set");
    int (*caught)(int) = (int (*)(int))dlsym(library, "late_catch");
#pragma omp parallel num_threads(3)
    {
        CHECK(sum() == 66);
        set(omp_get_thread_num() + 1);
#pragma omp barrier
        CHECK(sum() == 5 * (omp_get_thread_num() + 1));
        for (int i = 0; i < 10; i++) CHECK(caught(i) == i % 2);
    }
    /* A team that grows: its new members have what others had at first. */
#pragma omp parallel num_threads(5)
    CHECK(sum() == (omp_get_thread_num() < 3 ? 5 * (omp_get_thread_num() + 1) : 66));
    CHECK(sum() == 5);
    if (close) CHECK(dlclose(library) == 0);
}

int main(int argc, char **argv) {
    uint64_t *big = calloc(2 << 20, 8);
#pragma omp parallel for num_threads(3)
    for (int i = 0; i < 2 << 20; i++) big[i] = (uint64_t)i;
    use(argv[1], 0);
    for (int round = 0; round < 3; round++) use(argv[2], 1);
    uint64_t total = 0;
#pragma omp parallel for num_threads(3) reduction(+ : total)
    for (int i = 0; i < 2 << 20; i++) total += big[i];
    CHECK(total == (uint64_t)(2 << 20) * ((2 << 20) - 1) / 2);
    return verdict();
}
