/* Two processes copy between each other's memory by process_vm_readv and process_vm_writev.
 *
 *   copies_between serve        fills an array, prints its address, and checks what it holds when the word behind it changes
 *   copies_between PID ADDRESS  reads the array of process PID, and writes every second block of it and the word behind it */
#include "e2e.h"
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BLOCK = 100000, BLOCKS = 400 };
#define BYTES ((size_t)BLOCK * BLOCKS)

static uint64_t *filled(uint64_t seed) {
    uint64_t *words = malloc(BYTES + 8);
    words[BYTES / 8] = 0;
#pragma omp parallel for
    for (size_t i = 0; i < BYTES / 8; i++)
        words[i] = mix(i + seed);
    return words;
}

static void serve(void) {
    uint64_t *words = filled(0);
    printf("%d %lx\n", (int)getpid(), (unsigned long)words);
    fflush(stdout);
    while (__atomic_load_n(&words[BYTES / 8], __ATOMIC_SEQ_CST) == 0)
        usleep(1000);
#pragma omp parallel for
    for (size_t i = 0; i < BYTES / 8; i++)
        CHECK(words[i] == mix(i + (i * 8 / BLOCK % 2 ? 1 : 0)));
}

static void copy(int pid, char *from) {
    uint64_t *read = calloc(BYTES, 1), *write = filled(1);
    for (int block = 0; block < BLOCKS; block += 3) {
        /* Three blocks in two pieces there and one piece here. */
        size_t at = (size_t)block * BLOCK, left = BYTES - at, len = left < 3 * BLOCK ? left : 3 * BLOCK;
        struct iovec here = {(char *)read + at, len}, there[2] = {{from + at, len / 2}, {from + at + len / 2, len - len / 2}};
        CHECK(process_vm_readv(pid, &here, 1, there, 2, 0) == (ssize_t)len);
    }
#pragma omp parallel for
    for (size_t i = 0; i < BYTES / 8; i++)
        CHECK(read[i] == mix(i));
    for (int block = 1; block < BLOCKS; block += 2) {
        size_t at = (size_t)block * BLOCK;
        struct iovec here = {(char *)write + at, BLOCK}, there = {from + at, BLOCK};
        CHECK(process_vm_writev(pid, &here, 1, &there, 1, 0) == BLOCK);
    }
    /* Of its own memory, too; and what nobody has is refused. */
    struct iovec to = {read, 3 * BLOCK}, own = {write, 3 * BLOCK}, nowhere = {(void *)4096, 8};
    CHECK(process_vm_readv(getpid(), &to, 1, &own, 1, 0) == 3 * BLOCK);
    CHECK(memcmp(read, write, 3 * BLOCK) == 0);
    CHECK(process_vm_readv(pid, &to, 1, &nowhere, 1, 0) == -1 && errno == EFAULT);
    CHECK(process_vm_writev(pid, &to, 1, &nowhere, 1, 0) == -1 && errno == EFAULT);
    uint64_t one = 1;
    struct iovec word = {&one, 8}, last = {from + BYTES, 8};
    CHECK(process_vm_writev(pid, &word, 1, &last, 1, 0) == 8);
}

int main(int argc, char **argv) {
    if (argc == 3)
        copy(atoi(argv[1]), (char *)strtoul(argv[2], NULL, 16));
    else
        serve();
    return verdict();
}
