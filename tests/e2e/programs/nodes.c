/* What went wrong once on several nodes; each part checks itself. Runs with any team. */
#include "e2e.h"
#include <sys/stat.h>
#include <unistd.h>

/* A single behind a copyprivate ran nowhere. */
static void singles(void) {
    int ran = 0, wrong = 0;
#pragma omp parallel reduction(+ : wrong)
    for (int round = 0; round < 5; round++) {
        int given = -1;
#pragma omp single copyprivate(given)
        given = round;
        wrong += given != round;
#pragma omp single
        ran++;
    }
    CHECK(ran == 5 && wrong == 0);
}

/* Other nodes did not hear of omp_set_schedule and its like. */
static void control_variables(void) {
    enum { N = 1000 };
    static int owner[N];
    omp_set_schedule(omp_sched_static, 3);
    omp_set_max_active_levels(2);
#pragma omp parallel
    {
        omp_sched_t kind;
        int chunk;
        omp_get_schedule(&kind, &chunk);
        CHECK(kind == omp_sched_static && chunk == 3 && omp_get_max_active_levels() == 2);
#pragma omp for schedule(runtime)
        for (int i = 0; i < N; i++) owner[i] = omp_get_thread_num();
        int outer = omp_get_thread_num(), threads = omp_get_num_threads();
#pragma omp parallel num_threads(2)
        {
            CHECK(omp_get_num_threads() == 2 && omp_get_level() == 2);
            CHECK(omp_get_ancestor_thread_num(1) == outer && omp_get_team_size(1) == threads);
        }
    }
    for (int i = 0; i < N; i++) CHECK(owner[i] == i / 3 % omp_get_max_threads());
}

/* The program goes through as many copies of a task's reduction as it sees threads. */
static void task_reductions(void) {
    long sum = 0;
#pragma omp parallel
#pragma omp single
#pragma omp taskgroup task_reduction(+ : sum)
    for (int i = 0; i < 40; i++) {
#pragma omp task in_reduction(+ : sum)
        sum += i;
    }
    CHECK(sum == 780);
    long twice = 0;
#pragma omp parallel reduction(+ : twice)
#pragma omp for reduction(task, + : sum)
    for (int i = 0; i < 40; i++) {
#pragma omp task in_reduction(+ : sum)
        sum += i;
        twice++;
    }
    CHECK(sum == 1560 && twice == 40);
}

static int counter = 7;
static double table[3000];
#pragma omp threadprivate(counter, table)

/* copyin gave other nodes what the main thread's variables were before main. */
static void copies(void) {
    for (int round = 0; round < 3; round++) {
        counter = 42 + round;
        table[1000 * round] = round + 0.5;
#pragma omp parallel copyin(counter, table)
        {
            CHECK(counter == 42 + round && table[1000 * round] == round + 0.5);
            counter += omp_get_thread_num();
        }
#pragma omp parallel
        CHECK(counter == 42 + round + omp_get_thread_num());
    }
}

/* What other nodes wrote to the main thread's own variables, through a pointer, stayed there. */
static void main_threads(void) {
    for (int round = 1; round < 4; round++) {
        double *mains = table;
        for (int i = 0; i < 3000; i++) mains[i] = 0;
#pragma omp parallel
        for (int i = omp_get_thread_num(); i < 3000; i += omp_get_num_threads()) mains[i] = i + round;
        int wrong = 0;
        for (int i = 0; i < 3000; i++) wrong += mains[i] != i + round;
        CHECK(wrong == 0);
    }
}

/* A worker that waits at a barrier writes on its stack, which others read: that was lost, or the protocol ended the run. */
static void stacks(void) {
    for (int round = 0; round < 50; round++) {
        long mine[600], seen = 0;
        for (int i = 0; i < 600; i++) mine[i] = i + round;
#pragma omp parallel reduction(+ : seen)
        {
            long *given = 0;
#pragma omp single copyprivate(given)
            given = mine;
#pragma omp barrier
            for (int i = 0; i < 600; i++) seen += given[i];
        }
        CHECK(seen == (599L * 300 + 600L * round) * omp_get_max_threads());
    }
}

/* Teams of all sizes, one after the other. */
static void sizes(void) {
    for (int round = 0; round < 3; round++)
        for (int n = 1; n < 7; n++) {
            int seen[8] = {0};
#pragma omp parallel num_threads(n)
            {
                CHECK(omp_get_num_threads() == n);
                seen[omp_get_thread_num()]++;
            }
            for (int i = 0; i < 8; i++) CHECK(seen[i] == (i < n));
        }
    omp_set_num_threads(5);
    int count = 0;
#pragma omp parallel reduction(+ : count)
    count++;
    CHECK(count == 5);
}

/* Many small regions. */
static void many(void) {
    long sum = 0;
    for (int i = 0; i < 1000; i++) {
#pragma omp parallel reduction(+ : sum) num_threads(2)
        sum += i + omp_get_thread_num();
    }
    CHECK(sum == 999L * 1000 + 1000);
}

/* A call that writes to the stack, in a page that other nodes took meanwhile, waited for ever for a page locked by itself. */
static void calls(void) {
    enum { CALLS = 400, MOST = 64 };
    struct on_the_stack {
        unsigned added[MOST];
        struct stat file;
    } *taken = NULL;
    unsigned added[MOST] = {0};
    int done = 0;
#pragma omp parallel
    {
        struct on_the_stack mine = {{0}, {0}};
        int thread = omp_get_thread_num();
#pragma omp master
        taken = &mine;
#pragma omp barrier
        if (thread == 0) {
            for (int call = 0; call < CALLS; call++) CHECK(fstat(1, &mine.file) == 0 && mine.file.st_nlink > 0);
            __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
        } else {
            while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
                __atomic_add_fetch(&taken->added[thread % MOST], 1, __ATOMIC_RELAXED);
                __atomic_add_fetch(&added[thread % MOST], 1, __ATOMIC_RELAXED);
            }
        }
#pragma omp barrier
        CHECK(memcmp(taken->added, added, sizeof added) == 0);
#pragma omp barrier
    }
}

int main(void) {
    singles();
    control_variables();
    task_reductions();
    copies();
    main_threads();
    stacks();
    sizes();
    many();
    calls();
    return verdict();
}
