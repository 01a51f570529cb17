/* A program without OpenMP that forks: with and without exec, in a thread, past libc's handlers, again in the child; handlers that
 * use paged memory; memory that is to be shared. Each child checks the arrays, writes to them, and allocates. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 48 << 20 };

static unsigned char *big;
static volatile int *shared;
static char *rows[40000];

static unsigned char value(size_t i) { return (unsigned char)(i * 7 + i / 4096); }

static int is_right(void) {
    for (size_t i = 0; i < N; i++)
        if (big[i] != value(i)) return 0;
    for (int i = 0; i < 40000; i++)
        if (rows[i][0] != (char)i || rows[i][599] != (char)i) return 0;
    return 1;
}

static void in_child(void) {
    if (big && big[N - 5] != value(N - 5)) _exit(2);
}

static int child(void) {
    if (!is_right()) return 1;
    memset(big, 0, N / 2);
    for (int i = 0; i < 40000; i += 2) free(rows[i]);
    shared[5]++;
    char *more = malloc(24 << 20);
    memset(more, 1, 24 << 20);
    char *mapped = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 8 << 20; i++)
        if (mapped[i]) return 3;
    more = realloc(more, 30 << 20);
    memset(mapped, 1, 8 << 20);
    madvise(mapped, 4 << 20, MADV_DONTNEED);
    mapped = mremap(mapped, 8 << 20, 16 << 20, MREMAP_MAYMOVE);
    if (mapped[5] || mapped[5 << 20] != 1 || mapped[9 << 20]) return 6;
    pid_t next = fork();
    if (next == 0) _exit(more[24 << 20 >> 1] == 1 && rows[1][3] == 1 ? 0 : 4);
    int status;
    waitpid(next, &status, 0);
    free(more);
    return status ? 5 : 0;
}

static void forked(const char *how, pid_t (*fork_it)(void)) {
    fflush(stdout);
    pid_t pid = fork_it();
    if (pid == 0) _exit(child());
    int status = -1;
    waitpid(pid, &status, 0);
    printf("%s: %d, the parent's memory is %s\n", how, status, is_right() ? "right" : "wrong");
}

static void *in_thread(void *unused) {
    forked("fork in a thread", fork);
    return unused;
}

int main(void) {
    pthread_atfork(0, 0, in_child);
    shared = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    big = malloc(N);
    for (size_t i = 0; i < N; i++) big[i] = value(i);
    for (int i = 0; i < 40000; i++) memset(rows[i] = malloc(600), i, 600);
    volatile int *later = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    forked("fork", fork);
    forked("_Fork", _Fork);
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        later[7] = 9;
        execlp("echo", "echo", "from a child", (char *)0);
        _exit(1);
    }
    waitpid(pid, 0, 0);
    pid = vfork();
    if (pid == 0) {
        execlp("echo", "echo", "from another", (char *)0);
        _exit(1);
    }
    waitpid(pid, 0, 0);
    if (system("echo from a shell")) return 1;
    printf("shared: %d and %d\n", shared[5], later[7]);
    return 0;
}
