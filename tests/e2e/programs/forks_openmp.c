/* An OpenMP program that forks: children that compute, exec, begin regions, fork again, are killed, and talk through pipes; between
 * regions, in a region, in handlers, in a thread. Parent and children change the same large array, and each must see its own. */
#define _GNU_SOURCE
#include "e2e.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 3 << 20, ROWS = 20000, SMALL = 3000 };

static uint64_t global[1 << 18];
static uint64_t *big;
static int small = 7;
static _Thread_local int own = 11;
static char *rows[ROWS];
static volatile int *shared;
static int prepared, in_parent, in_child;

static void before(void) { prepared++; }
static void after_in_parent(void) { in_parent++; }
static void after_in_child(void) { in_child += big[N - 1] != 0; }

static void fill(uint64_t salt) {
#pragma omp parallel for
    for (int i = 0; i < N; i++) big[i] = mix((uint64_t)i + salt);
    for (int i = 0; i < 1 << 18; i++) global[i] = salt + (uint64_t)i;
    for (int i = 0; i < ROWS; i++) memset(rows[i], (int)(i + salt), SMALL);
}

static int is(uint64_t salt) {
    for (int i = 0; i < N; i++)
        if (big[i] != mix((uint64_t)i + salt)) return 0;
    for (int i = 0; i < 1 << 18; i++)
        if (global[i] != salt + (uint64_t)i) return 0;
    for (int i = 0; i < ROWS; i++)
        if (rows[i][0] != (char)(i + salt) || rows[i][SMALL - 1] != (char)(i + salt)) return 0;
    return 1;
}

static int result_of(pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* What a child does that goes on: 0 if all is right. */
static int compute(uint64_t salt) {
    if (!is(salt) || small != 7 || own != 11) return 1;
    if (getppid() == getpid()) return 2;
    fill(salt + 1000);
    small = own = 0;
    if (!is(salt + 1000)) return 3;
    for (int i = 0; i < ROWS; i += 2) free(rows[i]);
    char *more = calloc(8 << 20, 1);
    for (int i = 0; i < 8 << 20; i += 512)
        if (more[i]) return 4;
    more = realloc(more, 12 << 20);
    rows[1] = realloc(rows[1], 100000);
    if (rows[1][SMALL - 1] != (char)(1 + salt + 1000)) return 5;
    uint64_t sum = 0, expected = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(3)
    for (int i = 0; i < N; i++) sum += big[i] & 0xff;
    for (int i = 0; i < N; i++) expected += big[i] & 0xff;
    free(more);
    free(big);
    big = 0;
    return sum == expected ? 0 : 6;
}

static void child_and_parent_write(void) {
    fflush(stdout);
    fill(1);
    printf("unflushed, ");
    pid_t pid = fork();
    if (pid == 0) {
        int status = compute(1);
        fflush(stdout);
        _exit(status);
    }
    fill(2);
    CHECK(is(2));
    CHECK(result_of(pid) == 0);
    CHECK(is(2) && small == 7 && own == 11);
    printf("once each\n");
    fflush(stdout);
}

static void exec_at_once(void) {
    pid_t pid = fork();
    if (pid == 0) {
        execlp("sh", "sh", "-c", "exit 5", (char *)0);
        _exit(1);
    }
    CHECK(result_of(pid) == 5);
    for (int i = 3; i < 1024; i++)
        if (fork() == 0) {
            close_range(3, ~0U, 0);
            execlp("true", "true", (char *)0);
            _exit(1);
        } else if (i == 5) {
            break;
        }
    for (int i = 0; i < 3; i++) CHECK(result_of(wait(0) > 0 ? 0 : -1) == -1);
}

static int sum_of_part(int part) {
    uint64_t sum = 0;
    for (int i = part; i < N; i += 3) sum += big[i];
    return (int)(sum >> 33);
}

static void pipes_of_three(void) {
    int to[3][2], from[3][2], expected[3], got;
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        if (pipe(to[i]) || pipe(from[i])) exit(9);
        pids[i] = fork();
        if (pids[i] == 0) {
            int part = -1;
            if (read(to[i][0], &part, sizeof part) != sizeof part) _exit(1);
            int sum = sum_of_part(part);
            /* A buffer that has not arrived yet must do for the kernel, too. */
            static int buffer[40000];
            buffer[39999] = sum;
            _exit(write(from[i][1], &buffer[39999], sizeof sum) == sizeof sum ? 0 : 2);
        }
    }
    for (int i = 0; i < 3; i++) expected[i] = sum_of_part(i);
    for (int i = 0; i < N; i++) big[i] = 0;
    for (int i = 0; i < 3; i++) CHECK(write(to[i][1], &i, sizeof i) == sizeof i);
    for (int i = 0; i < 3; i++) {
        CHECK(read(from[i][0], &got, sizeof got) == sizeof got && got == expected[i]);
        CHECK(result_of(pids[i]) == 0);
        close(to[i][0]), close(to[i][1]), close(from[i][0]), close(from[i][1]);
    }
}

static void many_in_a_row(void) {
    for (int i = 0; i < 50; i++) {
        big[i] = (uint64_t)i + 77;
        global[i] = (uint64_t)i;
        pid_t pid = fork();
        if (pid == 0) _exit(big[i] == (uint64_t)i + 77 && global[i] == (uint64_t)i ? i : 255);
        big[i] = 0;
        CHECK(result_of(pid) == i);
    }
}

static void killed(void) {
    pid_t pid = fork();
    if (pid == 0) {
        raise(SIGKILL);
    }
    CHECK(result_of(pid) == 1000 + SIGKILL);
    pid = fork();
    if (pid == 0)
        for (;;) pause();
    kill(pid, SIGTERM);
    CHECK(result_of(pid) == 1000 + SIGTERM);
}

/* A child that forks again at once, as daemons do, and ends by exit, whose handlers and buffers are its own. */
static void grandchildren(void) {
    fill(3);
    int ends[2];
    if (pipe(ends)) exit(9);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        pid_t next = fork();
        if (next == 0) {
            char right = (char)is(3);
            if (write(ends[1], &right, 1) != 1) _exit(1);
            _exit(0);
        }
        exit(result_of(next));
    }
    fill(4);
    char right = 0;
    CHECK(read(ends[0], &right, 1) == 1 && right == 1);
    CHECK(result_of(pid) == 0 && is(4));
    pid = fork();
    if (pid == 0) {
        printf("buffers are flushed at a child's end\n");
        exit(0);
    }
    CHECK(result_of(pid) == 0);
}

static void in_a_region(void) {
    fill(5);
    int right = 0;
#pragma omp parallel reduction(+ : right)
    {
        own = 11;
        pid_t pid = fork();
        if (pid == 0) _exit(big[N - 5] == mix((uint64_t)N) && own == 11 && global[9] == 14 ? 3 : 4);
        right += result_of(pid) == 3;
        pid = fork();
        if (pid == 0) {
            execlp("true", "true", (char *)0);
            _exit(1);
        }
        right += result_of(pid) == 0;
    }
    CHECK(right >= 2 && right % 2 == 0);
    CHECK(is(5));
}

static void *thread(void *unused) {
    pid_t pid = fork();
    if (pid == 0) _exit(is(6) ? 0 : 1);
    CHECK(result_of(pid) == 0);
    return unused;
}

static void with_threads(void) {
    fill(6);
    pthread_t made;
    CHECK(pthread_create(&made, 0, thread, 0) == 0);
    pthread_join(made, 0);
    pid_t pid = vfork();
    if (pid == 0) {
        execlp("true", "true", (char *)0);
        _exit(1);
    }
    CHECK(result_of(pid) == 0);
    pid = _Fork();
    if (pid == 0) _exit(is(6) ? 0 : 1);
    CHECK(result_of(pid) == 0);
    CHECK(system("exit 3") >> 8 == 3);
}

static void shared_memory(void) {
    srand(5);
    int first = rand();
    pid_t pid = fork();
    if (pid == 0) {
        shared[1000] = rand();
        setenv("FORKED", "yes", 1);
        _exit(getenv("FORKED") ? 0 : 1);
    }
    int next = rand();
    CHECK(result_of(pid) == 0 && shared[1000] == next && first != next && !getenv("FORKED"));
}

int main(void) {
    big = malloc(N * sizeof *big);
    shared = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < ROWS; i++) rows[i] = malloc(SMALL);
    pthread_atfork(before, after_in_parent, after_in_child);
    child_and_parent_write();
    exec_at_once();
    fill(1);
    pipes_of_three();
    many_in_a_row();
    killed();
    grandchildren();
    in_a_region();
    with_threads();
    shared_memory();
    CHECK(prepared == in_parent && prepared > 60);
    pid_t pid = fork();
    if (pid == 0) _exit(in_child == 1 ? 0 : 1);
    CHECK(result_of(pid) == 0);
    int last = 0;
#pragma omp parallel reduction(+ : last)
    last++;
    CHECK(last >= 1);
    return verdict();
}
