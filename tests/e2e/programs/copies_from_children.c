/* Forked processes read and write their parent's memory by process_vm_readv and process_vm_writev, and each other's; the parent theirs. */
#define _GNU_SOURCE
#include "e2e.h"
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 4 << 20, BYTES = WORDS * 8 };

static uint64_t *given, *taken;
static int to_child[2], from_child[2];

static ssize_t transfer(int write, pid_t pid, void *here, void *there) {
    struct iovec ours = {here, BYTES}, theirs = {there, BYTES};
    return write ? process_vm_writev(pid, &ours, 1, &theirs, 1, 0) : process_vm_readv(pid, &ours, 1, &theirs, 1, 0);
}

static void fill(uint64_t *words, uint64_t seed) {
    for (size_t i = 0; i < WORDS; i++)
        words[i] = mix(i + seed);
}

static size_t wrong(const uint64_t *words, uint64_t seed) {
    size_t other = 0;
    for (size_t i = 0; i < WORDS; i++)
        other += words[i] != mix(i + seed);
    return other;
}

static void may_be_traced(void) { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); }

/* Starts a child that fills its own copy of `given`, and has `taken` written to when it is told to go on. */
static pid_t partner(uint64_t seed) {
    pid_t pid = fork();
    char byte = 1;
    if (pid == 0) {
        may_be_traced();
        fill(given, seed);
        CHECK(write(from_child[1], &byte, 1) == 1 && read(to_child[0], &byte, 1) == 1);
        CHECK(wrong(taken, seed + 1) == 0);
        _exit(failures != 0);
    }
    CHECK(read(from_child[0], &byte, 1) == 1);
    return pid;
}

static void end(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(status == 0);
}

static void exchange_with(pid_t pid, uint64_t seed) {
    char byte = 1;
    CHECK(transfer(0, pid, taken, given) == BYTES && wrong(taken, seed) == 0);
    fill(taken, seed + 1);
    CHECK(transfer(1, pid, taken, taken) == BYTES);
    CHECK(write(to_child[1], &byte, 1) == 1);
}

int main(void) {
    CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
    may_be_traced();
    given = malloc(BYTES), taken = malloc(BYTES);
    fill(given, 5);
    fill(taken, 6);
    /* A child reads this process's memory and writes to it. */
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        memset(given, 0, BYTES);
        CHECK(transfer(0, parent, given, given) == BYTES && wrong(given, 5) == 0);
        fill(given, 7);
        CHECK(transfer(1, parent, given, taken) == BYTES);
        _exit(failures != 0);
    }
    end(child);
    CHECK(wrong(given, 5) == 0);
    CHECK(wrong(taken, 7) == 0);
    /* This process does so with a child, and one child with another. */
    child = partner(20);
    exchange_with(child, 20);
    end(child);
    child = partner(30);
    pid_t other = fork();
    if (other == 0) {
        exchange_with(child, 30);
        _exit(failures != 0);
    }
    end(other);
    end(child);
    return verdict();
}
