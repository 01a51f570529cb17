/* A program that reserves addresses and hands memory out itself, as Java and JavaScript do. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
    size_t all = 1ul << 40;
    char *heap = mmap(0, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heap == MAP_FAILED) return 1;
    long sum = 0;
    for (int i = 0; i < 40; i++) {
        char *part = heap + ((size_t)i << 30);
        if (mprotect(part, 1 << 20, PROT_READ | PROT_WRITE)) return 2;
        memset(part, i, 1 << 20);
        sum += part[i];
    }
    printf("%ld\n", sum);
    return 0;
}
