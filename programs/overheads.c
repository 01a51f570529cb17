/* What OpenMP's constructs cost, in the manner of EPCC's micro benchmarks: a construct around a short delay, less the same
 * delays without the construct. Prints a line for each construct, with the median of the repetitions and the difference of
 * the least times, in nanoseconds:
 *   Overhead: <construct> <workers> <median> <least>
 *
 * The reference runs in a team of the same size, so that a team with more threads than CPUs is not charged for its delays.
 * `atoll bench openmp` runs it, built by gcc and by clang.
 */
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Additions of one delay: about 100 ns. */
#define DELAY 100
/* Iterations of each thread in one loop, and in one task loop. */
#define ITERATIONS 128

static int workers = 2;
static int repetitions = 9;
static double shortest = 1e-3;
static volatile double sink;

/* Is not inlined, so that a construct and its reference execute the same instructions. */
__attribute__((noinline)) static void delay(void) {
    double sum = 0;
    for (int i = 0; i < DELAY; i++) {
        sum += i;
        __asm__ volatile("" : "+x"(sum));
    }
    if (sum < 0) sink = sum;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* References. */

static void all_delay(long count) {
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) delay();
}

static void one_delays(long count) {
    for (long i = 0; i < count; i++) delay();
}

/* The loops' and task loops' reference, with as many delays in each thread as iterations. */
static void all_iterate(long count) { all_delay(count * ITERATIONS); }

/* As many delays as those of all threads, one after the other. */
static void in_turn(long count) { one_delays(count * workers); }

static void all_twice(long count) {
#pragma omp parallel num_threads(workers)
#pragma omp parallel num_threads(2)
    for (long i = 0; i < count; i++) delay();
}

/* Constructs. */

static void parallel(long count) {
    for (long i = 0; i < count; i++) {
#pragma omp parallel num_threads(workers)
        delay();
    }
}

static void nested(long count) {
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) {
#pragma omp parallel num_threads(2)
        delay();
    }
}

static void barrier(long count) {
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) {
        delay();
#pragma omp barrier
    }
}

static void single(long count) {
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) {
#pragma omp single
        delay();
    }
}

static void critical(long count) {
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) {
#pragma omp critical
        delay();
    }
}

static void lock(long count) {
    omp_lock_t lock;
    omp_init_lock(&lock);
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) {
        omp_set_lock(&lock);
        delay();
        omp_unset_lock(&lock);
    }
    omp_destroy_lock(&lock);
}

static void reduction(long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
#pragma omp parallel num_threads(workers) reduction(+ : sum)
        {
            delay();
            sum += 1;
        }
    }
    if (sum != (double)count * workers) {
        fprintf(stderr, "overheads: the reduction gave %f\n", sum);
        exit(1);
    }
}

static void ordered(long count) {
#pragma omp parallel for num_threads(workers) ordered schedule(static, 1)
    for (long i = 0; i < count * workers; i++) {
#pragma omp ordered
        delay();
    }
}

#define LOOP(name, ...) \
    static void name(long count) { \
        const int all = ITERATIONS * workers; \
        _Pragma("omp parallel num_threads(workers)") for (long j = 0; j < count; j++) { \
            _Pragma(#__VA_ARGS__) for (int i = 0; i < all; i++) delay(); \
        } \
    }

LOOP(loop_static, omp for schedule(static))
LOOP(loop_static_1, omp for schedule(static, 1))
LOOP(loop_dynamic_1, omp for schedule(dynamic, 1))
LOOP(loop_guided_1, omp for schedule(guided, 1))

static void task_by_one(long count) {
#pragma omp parallel num_threads(workers)
#pragma omp single
    for (long i = 0; i < count * workers; i++) {
#pragma omp task
        delay();
    }
}

static void tasks_by_all(long count) {
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) {
#pragma omp task
        delay();
    }
}

static void task_wait(long count) {
#pragma omp parallel num_threads(workers)
    for (long i = 0; i < count; i++) {
#pragma omp task
        delay();
#pragma omp taskwait
    }
}

static void task_loop(long count) {
    const unsigned long all = (unsigned long)(ITERATIONS * workers);
#pragma omp parallel num_threads(workers)
#pragma omp single
    for (long j = 0; j < count; j++) {
#pragma omp taskloop grainsize(1)
        for (unsigned long i = 0; i < all; i++) delay();
    }
}

/* A binary tree of tasks, each of which waits for its two children; `depth` levels. */
static void grow(int depth) {
    delay();
    if (depth == 0) return;
#pragma omp task
    grow(depth - 1);
#pragma omp task
    grow(depth - 1);
#pragma omp taskwait
}

#define TREE_DEPTH 6
#define TREE_TASKS ((2 << TREE_DEPTH) - 1)

static void task_tree(long count) {
#pragma omp parallel num_threads(workers)
#pragma omp single
    for (long i = 0; i < count * workers; i++) grow(TREE_DEPTH);
}

static void all_grow(long count) { all_delay(count * TREE_TASKS); }

typedef struct {
    const char *name;
    void (*with)(long);
    void (*reference)(long);
    int each;     /* What one count stands for: iterations, or tasks, of each thread. */
    int all_work; /* 1: the cost of all threads' work is shared among as many tasks or turns as there are threads. */
} construct;

static const construct CONSTRUCTS[] = {
    {"parallel", parallel, all_delay, 1, 0},
    {"barrier", barrier, all_delay, 1, 0},
    {"static", loop_static, all_iterate, ITERATIONS, 0},
    {"static,1", loop_static_1, all_iterate, ITERATIONS, 0},
    {"dynamic,1", loop_dynamic_1, all_iterate, ITERATIONS, 0},
    {"guided,1", loop_guided_1, all_iterate, ITERATIONS, 0},
    {"single", single, one_delays, 1, 0},
    {"critical", critical, in_turn, 1, 1},
    {"lock", lock, in_turn, 1, 1},
    {"ordered", ordered, in_turn, 1, 1},
    {"reduction", reduction, all_delay, 1, 0},
    {"nested", nested, all_twice, 1, 0},
    {"task-by-one", task_by_one, all_delay, 1, 1},
    {"tasks-by-all", tasks_by_all, all_delay, 1, 1},
    {"taskwait", task_wait, all_delay, 1, 0},
    {"taskloop", task_loop, all_iterate, ITERATIONS, 1},
    {"task-tree", task_tree, all_grow, TREE_TASKS, 1},
};

#define ALL (int)(sizeof CONSTRUCTS / sizeof *CONSTRUCTS)

static double timed(void (*what)(long), long count) {
    double start = seconds();
    what(count);
    return seconds() - start;
}

static double least_of_three(void (*what)(long), long count) {
    double least = timed(what, count);
    for (int i = 0; i < 2 && least < 100 * shortest; i++) {
        double seconds = timed(what, count);
        if (seconds < least) least = seconds;
    }
    return least;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds of one construct, iteration or task: the median, and the difference of the least times, which other work on
 * the machine disturbs less. */
typedef struct {
    double median, least;
} cost;

static cost overhead(const construct *c) {
    long count = 1;
    while (least_of_three(c->with, count) < shortest && count < 1L << 24) count *= 2;
    double all[99], least_with = 1e9, least_without = 1e9;
    timed(c->reference, count);
    for (int i = 0; i < repetitions; i++) {
        double without = timed(c->reference, count), with = timed(c->with, count);
        all[i] = with - without;
        if (with < least_with) least_with = with;
        if (without < least_without) least_without = without;
    }
    qsort(all, (size_t)repetitions, sizeof *all, by_size);
    double unit = 1e9 / ((double)count * c->each * (c->all_work ? workers : 1));
    return (cost){all[repetitions / 2] * unit, (least_with - least_without) * unit};
}

static void usage(void) {
    fprintf(stderr, "usage: overheads [--workers N] [--repetitions N] [--microseconds N] [--only CONSTRUCT]...\n");
    exit(2);
}

static long number(const char *text, long most) {
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > most) usage();
    return n;
}

int main(int argc, char **argv) {
    int wanted[ALL] = {0}, some = 0;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) usage();
        if (!strcmp(argv[i], "--workers")) workers = (int)number(argv[i + 1], 1024);
        else if (!strcmp(argv[i], "--repetitions")) repetitions = (int)number(argv[i + 1], 99);
        else if (!strcmp(argv[i], "--microseconds")) shortest = 1e-6 * (double)number(argv[i + 1], 10000000);
        else if (!strcmp(argv[i], "--only")) {
            int at = 0;
            while (at < ALL && strcmp(CONSTRUCTS[at].name, argv[i + 1])) at++;
            if (at == ALL) {
                fprintf(stderr, "overheads: there is no construct %s\n", argv[i + 1]);
                return 2;
            }
            wanted[at] = some = 1;
        } else usage();
    }
    omp_set_dynamic(0);
    omp_set_max_active_levels(2);
    for (int at = 0; at < ALL; at++) {
        if (some && !wanted[at]) continue;
        cost c = overhead(&CONSTRUCTS[at]);
        printf("Overhead: %s %d %.2f %.2f\n", CONSTRUCTS[at].name, workers, c.median, c.least);
        fflush(stdout);
    }
    return 0;
}
