/* Anonymous mmap, munmap of parts, mremap, madvise, mprotect, MAP_FIXED, mlock, msync on what atoll manages. */
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MB = 1 << 20, SIZE = 16 * MB, STEP = 4096 };

static void fill(unsigned char *p, size_t n, uint64_t seed) {
#pragma omp parallel for
    for (size_t i = 0; i < n; i += 512) *(uint64_t *)(p + i) = mix(seed + i);
}
static int holds(const unsigned char *p, size_t n, uint64_t seed) {
    int bad = 0;
#pragma omp parallel for reduction(+ : bad)
    for (size_t i = 0; i < n; i += 512) bad += *(const uint64_t *)(p + i) != mix(seed + i);
    return !bad;
}
static int zero(const unsigned char *p, size_t n) {
    int bad = 0;
#pragma omp parallel for reduction(+ : bad)
    for (size_t i = 0; i < n; i += 512) bad += *(const uint64_t *)(p + i) != 0;
    return !bad;
}

int main(void) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(p != MAP_FAILED && zero(p, SIZE));
    fill(p, SIZE, 1);
    CHECK(holds(p, SIZE, 1));
    /* A hole in the middle. */
    CHECK(munmap(p + 8 * MB, 4 * MB) == 0);
    CHECK(holds(p, 8 * MB, 1) && holds(p + 12 * MB, SIZE - 12 * MB, 1 + 12 * MB));
    unsigned char *q = mmap(p + 8 * MB, 4 * MB, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
    CHECK(q == p + 8 * MB && zero(q, 4 * MB));
    fill(q, 4 * MB, 2);
    /* MAP_FIXED over what is there. */
    q = mmap(p, 4 * MB, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
    CHECK(q == p && zero(q, 4 * MB));
    CHECK(holds(p + 4 * MB, 4 * MB, 1 + 4 * MB) && holds(p + 8 * MB, 4 * MB, 2));
    /* DONTNEED: zero afterwards, also at odd places. */
    fill(p, SIZE, 3);
    CHECK(madvise(p + 5 * STEP, 9 * STEP, MADV_DONTNEED) == 0);
    CHECK(zero(p + 5 * STEP, 9 * STEP) && holds(p, 5 * STEP, 3) && holds(p + 14 * STEP, STEP * 100, 3 + 14 * STEP));
    CHECK(madvise(p, SIZE, MADV_DONTNEED) == 0 && zero(p, SIZE));
    fill(p, SIZE, 4);
    CHECK(madvise(p, SIZE, MADV_SEQUENTIAL) == 0 && madvise(p, SIZE, MADV_WILLNEED) == 0 && holds(p, SIZE, 4));
    /* mremap: grows, moves, shrinks. */
    q = mremap(p, SIZE, 2 * (size_t)SIZE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && holds(q, SIZE, 4) && zero(q + SIZE, SIZE));
    fill(q + SIZE, SIZE, 5);
    p = mremap(q, 2 * (size_t)SIZE, SIZE, 0);
    CHECK(p == q && holds(p, SIZE, 4));
    unsigned char *to = mmap(NULL, SIZE, PROT_NONE, flags, -1, 0);
    CHECK(to != MAP_FAILED);
    q = mremap(p, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    CHECK(q == to && holds(q, SIZE, 4));
    p = q;
    /* mprotect to read-only and back; NONE and back keeps the content. */
    CHECK(mprotect(p, SIZE, PROT_READ) == 0 && holds(p, SIZE, 4));
    CHECK(mprotect(p, SIZE, PROT_READ | PROT_WRITE) == 0);
    fill(p, SIZE, 6);
    CHECK(mprotect(p, SIZE, PROT_NONE) == 0 && mprotect(p, SIZE, PROT_READ | PROT_WRITE) == 0);
    CHECK(holds(p, SIZE, 6));
    CHECK(mlock(p, 64 * 1024) == 0 || errno == ENOMEM || errno == EPERM || errno == EAGAIN);
    munlock(p, 64 * 1024);
    CHECK(holds(p, SIZE, 6));
    CHECK(msync(p, SIZE, MS_SYNC) == 0);
    unsigned char vec[16];
    CHECK(mincore(p, 16 * 4096, vec) == 0);
    CHECK(munmap(p, SIZE) == 0);
    /* Reserve with PROT_NONE, commit by mprotect: how allocators of other languages work. */
    p = mmap(NULL, (size_t)1 << 32, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED);
    if (p != MAP_FAILED) {
        CHECK(mprotect(p + (1 << 30), SIZE, PROT_READ | PROT_WRITE) == 0);
        fill(p + (1 << 30), SIZE, 7);
        CHECK(holds(p + (1 << 30), SIZE, 7));
        CHECK(munmap(p, (size_t)1 << 32) == 0);
    }
    /* Many mappings that come and go, from the master between regions. */
    for (int i = 0; i < 300; i++) {
        size_t n = (size_t)(1 + i % 7) * 300 * 1024;
        p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, -1, 0);
        CHECK(p != MAP_FAILED && zero(p, n));
        fill(p, n, (uint64_t)i);
        CHECK(holds(p, n, (uint64_t)i));
        CHECK(munmap(p, n) == 0);
    }
    /* MAP_SHARED | MAP_ANONYMOUS, and from inside a region. */
    static unsigned char *volatile in_region;
    p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(p, SIZE, 8);
    CHECK(holds(p, SIZE, 8));
    munmap(p, SIZE);
#pragma omp parallel
    {
        if (omp_get_thread_num() == omp_get_num_threads() - 1) {
            in_region = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
            *(uint64_t *)in_region = 5;
        }
#pragma omp barrier
        CHECK(*(uint64_t *)in_region == 5);
#pragma omp barrier
#pragma omp for
        for (size_t i = 0; i < SIZE; i += 4096) in_region[i] = (unsigned char)(i >> 12);
    }
    for (size_t i = 0; i < SIZE; i += 4096) CHECK(in_region[i] == (unsigned char)(i >> 12));
    munmap(in_region, SIZE);
    return verdict();
}
