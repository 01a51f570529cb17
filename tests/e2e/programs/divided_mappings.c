/* Mappings that are not plain memory: divided by mbind in the middle of pages, holding code, stacks of coroutines that begin regions,
   files mapped over parts of them. */
#define _GNU_SOURCE
#include "e2e.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static void divided(void) {
    enum { N = 24 << 20 };
    char *block = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* As OpenBLAS does for its buffers: a preferred node, here for odd pages of each megabyte. */
    for (long at = 4096; at < N; at += 1 << 20) syscall(SYS_mbind, block + at, 5 * 4096, 1, NULL, 0, 0);
    for (int round = 0; round < 3; round++) {
#pragma omp parallel for num_threads(3)
        for (long i = 0; i < N; i += 64) block[i] = (char)(i / 64 + round);
        long bad = 0;
#pragma omp parallel for num_threads(3) reduction(+ : bad)
        for (long i = 0; i < N; i += 64) bad += block[i] != (char)(i / 64 + round);
        CHECK(bad == 0);
    }
    munmap(block, N);
}

typedef int (*function)(void);
static void code_at(unsigned char *at, int value) {
    at[0] = 0xb8; /* mov eax, value; ret */
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
}

static void code(void) {
    long page = 4096;
    unsigned char *at_once = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *later = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 64; i++) code_at(at_once + i * page, i), code_at(later + i * page, 100 + i);
    CHECK(mprotect(later + 7 * page, 50 * page, PROT_READ | PROT_EXEC) == 0);
    char *push = malloc(20 << 20);
    memset(push, 1, 20 << 20);
    int bad = 0;
#pragma omp parallel for num_threads(3) reduction(+ : bad)
    for (int i = 0; i < 64; i++) {
        bad += ((function)(at_once + i * page))() != i;
        if (i >= 7 && i < 57) bad += ((function)(later + i * page))() != 100 + i;
    }
    CHECK(bad == 0);
    code_at(at_once + 5 * page, 55);
#pragma omp parallel num_threads(3)
    CHECK(((function)(at_once + 5 * page))() == 55);
    CHECK(munmap(at_once, 64 * page) == 0 && munmap(later, 64 * page) == 0);
    unsigned char *again = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#pragma omp parallel for num_threads(3) reduction(+ : bad)
    for (int i = 0; i < 64; i++) bad += again[i * page] != 0, again[i * page] = 1;
    CHECK(bad == 0);
    munmap(again, 64 * page);
    free(push);
}

static ucontext_t here, there;
static long coroutine_sum;
static void coroutine(void) {
    long on_stack[100], sum = 0;
    for (int i = 0; i < 100; i++) on_stack[i] = i;
#pragma omp parallel for num_threads(3) reduction(+ : sum)
    for (int i = 0; i < 100; i++) sum += on_stack[i];
    coroutine_sum = sum;
}

static void coroutines(void) {
    for (int round = 0; round < 20; round++) {
        size_t bytes = 256 << 10;
        char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        CHECK(mprotect(stack, 4096, PROT_NONE) == 0);
        CHECK(stack[8192] == 0);
        getcontext(&there);
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = bytes;
        there.uc_link = &here;
        coroutine_sum = 0;
        makecontext(&there, coroutine, 0);
        swapcontext(&here, &there);
        CHECK(coroutine_sum == 4950);
        CHECK(munmap(stack, bytes) == 0);
    }
}

static void over(void) {
    long page = 4096, n = 16;
    char name[] = "/tmp/atoll-e2e-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    CHECK(ftruncate(file, n * page) == 0);
    /* The same file twice, one behind the other: a ring. */
    char *ring = mmap(NULL, 2 * n * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int half = 0; half < 2; half++)
        CHECK(mmap(ring + half * n * page, n * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == ring + half * n * page);
    for (long i = 0; i < n * page; i++) ring[i] = (char)(i % 101);
    int bad = 0;
#pragma omp parallel for num_threads(3) reduction(+ : bad)
    for (long i = 0; i < n * page; i++) bad += ring[n * page + i] != (char)(i % 101);
    CHECK(bad == 0);
    /* Anonymous memory over a part of it, then all unmapped, and the addresses used again. */
    CHECK(mmap(ring + page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == ring + page);
    CHECK(ring[page] == 0 && ring[n * page + page] == (char)(page % 101));
    ring[page] = 9;
    CHECK(ring[n * page + page] == (char)(page % 101));
    CHECK(munmap(ring, 2 * n * page) == 0);
    char *plain = mmap(NULL, 2 * n * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
#pragma omp parallel for num_threads(3) reduction(+ : bad)
    for (long i = 0; i < 2 * n; i++) bad += plain[i * page] != 0, plain[i * page] = (char)i;
    for (long i = 0; i < 2 * n; i++) bad += plain[i * page] != (char)i;
    CHECK(bad == 0);
    /* A private copy of the file over a part. */
    CHECK(mmap(plain + 3 * page, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, page) == plain + 3 * page);
    CHECK(plain[3 * page] == (char)(page % 101) && plain[2 * page] == 2 && plain[5 * page] == 5);
    munmap(plain, 2 * n * page);
    close(file);
}

int main(void) {
    for (int round = 0; round < 2; round++) {
        divided();
        code();
        coroutines();
        over();
    }
    return verdict();
}
