/* Maps memory at addresses that it has unmapped: with MAP_FIXED_NOREPLACE, which fails where anything is, and with MAP_FIXED, after which
 * blocks that are allocated lie elsewhere. What is not mapped is told by mincore and madvise. */
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <sys/mman.h>

enum { PIECE = 1 << 20, HOLE = 256 << 10, PIECES = 48, BLOCKS = 40 };

static void *at(char *place, size_t bytes, int how) {
    errno = 0;
    return mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
}

static void make_holes(char *area) {
    for (int i = 0; i < PIECES; i++)
        CHECK(munmap(area + (size_t)i * PIECE, HOLE) == 0);
}

static size_t not(const char *from, size_t bytes, char what) {
    size_t other = 0;
    for (size_t i = 0; i < bytes; i += 512)
        other += from[i] != what;
    return other;
}

int main(void) {
    char *area = at(NULL, (size_t)PIECES * PIECE, 0);
    memset(area, 1, (size_t)PIECES * PIECE);
    for (int round = 0; round < 2; round++) {
        make_holes(area);
        unsigned char there[PIECE / 4096];
        errno = 0;
        CHECK(mincore(area + PIECE, PIECE, there) == -1 && errno == ENOMEM);
        CHECK(mincore(area + HOLE, PIECE - HOLE, there) == 0);
        errno = 0;
        CHECK(madvise(area + PIECE, HOLE, MADV_DONTNEED) == -1 && errno == ENOMEM);
        CHECK(at(area, 2 * HOLE, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
        CHECK(at(area + HOLE, 4096, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
        for (int i = 0; i < PIECES; i++) {
            char *hole = area + (size_t)i * PIECE;
            CHECK(at(hole, HOLE, round ? MAP_FIXED : MAP_FIXED_NOREPLACE) == hole);
            CHECK(at(hole, HOLE, MAP_FIXED_NOREPLACE) == MAP_FAILED && errno == EEXIST);
        }
        for (int i = 0; i < PIECES; i++) {
            char *hole = area + (size_t)i * PIECE;
            CHECK(not(hole, HOLE, 0) == 0);
            CHECK(not(hole + HOLE, PIECE - HOLE, 1) == 0);
            memset(hole, 2, HOLE);
        }
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++)
            memset(blocks[i] = malloc(HOLE), 3, HOLE);
        for (int i = 0; i < PIECES; i++)
            CHECK(not(area + (size_t)i * PIECE, HOLE, 2) == 0);
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(not(blocks[i], HOLE, 3) == 0);
            free(blocks[i]);
        }
    }
    /* All of it, and a hole in the midst that is mapped over by what is moved there. */
    CHECK(munmap(area, (size_t)PIECES * PIECE) == 0);
    CHECK(at(area, (size_t)PIECES * PIECE, MAP_FIXED_NOREPLACE) == area);
    CHECK(not(area, (size_t)PIECES * PIECE, 0) == 0);
    char *other = at(NULL, HOLE, 0);
    memset(other, 4, HOLE);
    munmap(area + PIECE, HOLE);
    CHECK(mremap(other, HOLE, HOLE, MREMAP_MAYMOVE | MREMAP_FIXED, area + PIECE) == area + PIECE);
    memset(malloc(HOLE), 5, HOLE);
    CHECK(not(area + PIECE, HOLE, 4) == 0);
    CHECK(munmap(area, (size_t)PIECES * PIECE) == 0);
    return verdict();
}
