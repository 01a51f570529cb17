/* Without OpenMP: closes all descriptors, known and unknown, in every way, as daemons do, and goes on with memory that is far; sends and
 * receives several messages at once from there, has contexts there, and makes system calls by number with pointers there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { MIB = 1 << 20, BYTES = 40 * MIB };

static void fill(void *memory, size_t bytes, uint64_t seed) {
    uint64_t *words = memory, x = seed + 1;
    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = x = x * 6364136223846793005u + 1442695040888963407u;
}

static uint64_t sum(const void *memory, size_t bytes) {
    const uint64_t *words = memory;
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes / 8; i++)
        sum = sum * 31 + words[i];
    return sum;
}

static ucontext_t ours, *theirs;
static int visits;

static void routine(void) {
    for (;;) {
        visits++;
        swapcontext(theirs, &ours);
    }
}

/* What a thread's key is destroyed by allocates, when the allocator has freed what the thread had. */
static pthread_key_t key;

static void destroy(void *value) {
    (void)value;
    for (int i = 0; i < 20000; i++) {
        char *block = malloc(100 + i % 100);
        memset(block, i, 100);
        if (i % 2)
            free(block);
    }
}

static void *thread(void *argument) {
    pthread_setspecific(key, &key);
    destroy(argument);
    return NULL;
}

int main(void) {
    char *one = malloc(BYTES), *other = malloc(BYTES);
    fill(one, BYTES, 1);
    fill(other, BYTES, 2);
    /* Contexts. */
    ucontext_t *context = theirs = (ucontext_t *)(one + 20 * MIB);
    getcontext(context);
    context->uc_stack.ss_sp = malloc(65536);
    context->uc_stack.ss_size = 65536;
    makecontext(context, routine, 0);
    for (int i = 0; i < 5; i++) {
        fill(other, BYTES, i);
        if (swapcontext(&ours, context))
            perror("swapcontext");
    }
    printf("%d visits\n", visits);
    /* Several messages at once. */
    int ends[2], failed = 0;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    for (size_t at = 0; at < 24 * MIB; at += 64 << 10) {
        struct iovec from[2], to[2];
        struct mmsghdr sent[2], got[2];
        memset(sent, 0, sizeof sent);
        memset(got, 0, sizeof got);
        for (int i = 0; i < 2; i++) {
            from[i] = (struct iovec){other + at + i * 30000, 30000};
            to[i] = (struct iovec){one + 22 * MIB / 2 + at / 2 + i * 30000, 30000};
            sent[i].msg_hdr = (struct msghdr){.msg_iov = &from[i], .msg_iovlen = 1};
            got[i].msg_hdr = (struct msghdr){.msg_iov = &to[i], .msg_iovlen = 1};
        }
        failed += sendmmsg(ends[0], sent, 2, 0) != 2 || sent[1].msg_len != 30000;
        failed += recvmmsg(ends[1], got, 2, 0, NULL) != 2 || got[1].msg_len != 30000;
        failed += memcmp(from[0].iov_base, to[0].iov_base, 30000) != 0;
    }
    failed += recvmmsg(ends[1], &(struct mmsghdr){.msg_hdr = {.msg_iov = &(struct iovec){one, 8}, .msg_iovlen = 1}}, 1, MSG_DONTWAIT, NULL) != -1 || errno != EAGAIN;
    printf("%d messages failed\n", failed);
    /* Calls by number. */
    fill(other, BYTES, 3);
    int refused = 0;
    refused += syscall(SYS_clock_gettime, CLOCK_REALTIME, one + 2 * MIB) < 0;
    refused += syscall(SYS_getcwd, one + 4 * MIB, 4096) < 0;
    strcpy(one + 6 * MIB, "/dev/null");
    fill(other, BYTES, 4);
    refused += syscall(SYS_openat, AT_FDCWD, one + 6 * MIB, O_RDONLY) < 0;
    printf("%d calls refused\n", refused);
    /* Threads that end. */
    pthread_key_create(&key, destroy);
    char **blocks = malloc(100000 * sizeof *blocks);
    for (int i = 0; i < 100000; i++)
        memset(blocks[i] = malloc(150), i, 150);
    for (int i = 0; i < 10; i++) {
        pthread_t made;
        pthread_create(&made, NULL, thread, NULL);
        pthread_join(made, NULL);
    }
    /* Everything is closed. */
    int wrong = 0;
    for (int fd = 3; fd < 1200; fd++)
        close(fd);
    wrong += close(700) != -1 || errno != EBADF;
    wrong += close_range(3, 2000, 0) != 0;
    closefrom(3);
    wrong += syscall(SYS_close_range, 3, ~0u, 0) != 0;
    wrong += open("/dev/null", O_RDONLY) != 3;
    fill(one, BYTES, 5);
    fill(other, BYTES, 6);
    printf("%d wrong, %lx %lx\n", wrong, sum(one, BYTES), sum(other, BYTES));
    return 0;
}
