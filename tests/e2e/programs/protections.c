/* Protections that mean something to a program without OpenMP: memory that a handler of SIGSEGV opens again, code that is written
 * and then run, and memory that grows downwards. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1 << 20, PAGE = 4096 };

static char *area;
static volatile int hits;

static void opened(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    if (page < area || page >= area + BYTES) _exit(7);
    hits++;
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

static void *map(size_t bytes, int flags) {
    void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) _exit(8);
    return at;
}

int main(void) {
    size_t n = 48 << 20;
    unsigned char *big = malloc(n);
    for (size_t i = 0; i < n; i++) big[i] = (unsigned char)(i * 7 + i / PAGE);
    struct sigaction action = {.sa_sigaction = opened, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    long sum = 0;
    area = map(BYTES, 0);
    memset(area, 3, BYTES);
    mprotect(area, BYTES, PROT_READ);
    for (int i = 0; i < BYTES / PAGE; i += 2) area[i * PAGE] = 5;
    for (int i = 0; i < BYTES; i++) sum += area[i];
    printf("%d pages were opened for writing, sum %ld\n", hits, sum);
    hits = 0;
    mprotect(area, BYTES, PROT_NONE);
    for (int i = 0; i < BYTES / PAGE; i++) sum += area[i * PAGE + 1];
    printf("%d pages were opened, sum %ld\n", hits, sum);
    munmap(area, BYTES);
    sum = 0;
    area = map(BYTES, 0);
    for (int i = 0; i < BYTES; i++) sum += area[i];
    printf("new memory holds %ld\n", sum);

    unsigned char returns[] = {0xb8, 42, 0, 0, 0, 0xc3};
    unsigned char *code = map(BYTES / 4, 0);
    memcpy(code, returns, sizeof returns);
    mprotect(code, BYTES / 4, PROT_READ | PROT_EXEC);
    int (*function)(void) = (int (*)(void))code;
    printf("code returns %d", function());
    mprotect(code, BYTES / 4, PROT_READ | PROT_WRITE);
    code[1] = 43;
    mprotect(code, BYTES / 4, PROT_READ | PROT_EXEC);
    printf(", then %d\n", function());

    hits = 0;
    area = map(BYTES, 0);
    memset(area, 1, BYTES);
    mmap(area, BYTES / 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int i = 0; i < BYTES; i += PAGE) sum += area[i];
    printf("%d pages that were laid over were opened, sum %ld\n", hits, sum);

    char *stack = map(64 * PAGE, MAP_GROWSDOWN | MAP_STACK);
    stack[0] = 1;
    char *kept = map(BYTES, 0);
    memset(kept, 9, BYTES);
    kept = mremap(kept, BYTES, 40 * BYTES, MREMAP_MAYMOVE);
    printf("grown memory holds %d and %d\n", kept[BYTES - 1], kept[BYTES]);
    for (size_t i = 0; i < n; i++)
        if (big[i] != (unsigned char)(i * 7 + i / PAGE)) return puts("lost"), 1;
    return 0;
}
