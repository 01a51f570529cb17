/* Tasks: recursion, dependences, groups, loops, reductions, priorities, events. */
// env: OMP_MAX_TASK_PRIORITY=10
#include "check.h"
#include <string.h>

static int fib(int n) {
    int x, y;
    if (n < 2)
        return n;
#pragma omp task shared(x) firstprivate(n)
    x = fib(n - 1);
#pragma omp task shared(y) firstprivate(n) if (n > 8)
    y = fib(n - 2);
#pragma omp taskwait
    return x + y;
}

static void recursion(void) {
    int value = 0;
#pragma omp parallel
#pragma omp single
    value = fib(18);
    CHECK(value == 2584);
#pragma omp parallel
#pragma omp master
    {
#pragma omp task final(1) shared(value)
        {
            CHECK(omp_in_final());
            value = fib(12);
        }
    }
    CHECK(value == 144);
    CHECK(fib(10) == 55);
}

static void many(void) {
    int done = 0;
#pragma omp parallel
    {
        for (int i = 0; i < 500; i++) {
#pragma omp task shared(done) untied
            {
#pragma omp atomic
                done++;
            }
        }
#pragma omp barrier
        CHECK(done == 500 * omp_get_num_threads());
    }
    done = 0;
#pragma omp parallel
    {
        struct {
            int numbers[100];
        } big;
        memset(&big, 0, sizeof big);
        big.numbers[99] = 1;
#pragma omp for schedule(dynamic)
        for (int i = 0; i < 50; i++) {
#pragma omp task shared(done) firstprivate(big)
            {
#pragma omp atomic
                done += big.numbers[99];
            }
        }
    }
    CHECK(done == 50);
}

static void dependences(void) {
    for (int round = 0; round < 50; round++) {
        int x = 0, order[4] = {0}, readers = 0;
#pragma omp parallel
#pragma omp single
        {
#pragma omp task depend(out : x) shared(x)
            x = 1;
            for (int i = 0; i < 3; i++) {
#pragma omp task depend(in : x) shared(x, readers)
                {
                    CHECK(x == 1);
#pragma omp atomic
                    readers++;
                }
            }
#pragma omp task depend(inout : x) shared(x, readers)
            {
                CHECK(readers == 3);
                x = 2;
            }
#pragma omp task depend(mutexinoutset : x) shared(x)
            x += 10;
#pragma omp task depend(mutexinoutset : x) shared(x)
            x += 20;
#pragma omp task depend(in : x) shared(x) if (0)
            CHECK(x == 32);
#pragma omp task depend(out : order[0]) shared(order)
            order[0] = 1;
#pragma omp taskwait depend(in : order[0])
            CHECK(order[0] == 1);
            omp_depend_t object;
#pragma omp depobj(object) depend(inout : order[1])
#pragma omp task depend(out : order[1]) shared(order)
            order[1] = 1;
#pragma omp task depend(depobj : object) shared(order)
            order[1]++;
#pragma omp depobj(object) update(in)
#pragma omp task depend(depobj : object) shared(order)
            CHECK(order[1] == 2);
#pragma omp taskwait
#pragma omp depobj(object) destroy
        }
        CHECK(x == 32);
    }
    /* A chain through an array, as a wavefront. */
    enum { N = 12 };
    int grid[N + 1][N + 1];
    memset(grid, 0, sizeof grid);
#pragma omp parallel
#pragma omp single
    for (int i = 1; i <= N; i++)
        for (int j = 1; j <= N; j++) {
#pragma omp task depend(in : grid[i - 1][j], grid[i][j - 1]) depend(out : grid[i][j]) shared(grid)
            {
                int up = grid[i - 1][j], left = grid[i][j - 1];
                grid[i][j] = (up > left ? up : left) + 1;
            }
        }
    CHECK(grid[N][N] == 2 * N - 1);
}

static void groups(void) {
    int inner = 0, outer = 0;
#pragma omp parallel
#pragma omp single
    {
#pragma omp task shared(outer)
        {
#pragma omp atomic
            outer++;
        }
#pragma omp taskgroup
        {
            for (int i = 0; i < 20; i++) {
#pragma omp task shared(inner)
                {
#pragma omp task shared(inner)
                    {
#pragma omp atomic
                        inner++;
                    }
                }
            }
        }
        CHECK(inner == 20);
    }
    CHECK(outer == 1);
}

static void loops(void) {
    static int hits[300];
#define TASKLOOP(type, from, condition, step, index, ...)                                                      \
    memset(hits, 0, sizeof hits);                                                                              \
    _Pragma("omp parallel") _Pragma("omp single") {                                                            \
        _Pragma(#__VA_ARGS__) for (type i = from; condition; step) {                                           \
            _Pragma("omp atomic") hits[index]++;                                                               \
        }                                                                                                      \
    }                                                                                                          \
    for (int i = 0; i < 300; i++)                                                                              \
        CHECK(hits[i] == 1);
    TASKLOOP(int, 0, i < 300, i++, i, omp taskloop)
    TASKLOOP(int, 300, i > 0, i--, i - 1, omp taskloop num_tasks(7))
    TASKLOOP(int, 0, i < 300, i++, i, omp taskloop grainsize(11))
    TASKLOOP(int, 0, i < 300, i++, i, omp taskloop grainsize(strict : 11))
    TASKLOOP(int, 0, i < 300, i++, i, omp taskloop num_tasks(strict : 13))
    TASKLOOP(int, 0, i < 300, i++, i, omp taskloop nogroup)
    TASKLOOP(unsigned long, 7, i < 307, i++, i - 7, omp taskloop if (0))
    TASKLOOP(unsigned long, 307, i > 7, i--, i - 8, omp taskloop)
    int last = -1;
#pragma omp parallel
#pragma omp single
#pragma omp taskloop lastprivate(last) num_tasks(5)
    for (int i = 0; i < 100; i++)
        last = i;
    CHECK(last == 99);
}

static void reductions(void) {
    int sum = 0, product = 1, empty = 3;
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskgroup task_reduction(+ : sum)
        {
            for (int i = 0; i < 40; i++) {
#pragma omp task in_reduction(+ : sum)
                sum += i;
            }
#pragma omp taskloop in_reduction(+ : sum)
            for (int i = 0; i < 10; i++)
                sum += 100;
        }
#pragma omp taskloop reduction(* : product)
        for (int i = 0; i < 10; i++)
            product *= 2;
#pragma omp taskloop reduction(+ : empty)
        for (int i = 0; i < 0; i++)
            empty++;
    }
    CHECK(sum == 780 + 1000 && product == 1024 && empty == 3);
    int tasks = 0;
#pragma omp parallel reduction(task, + : tasks)
    {
        tasks += 1;
#pragma omp task in_reduction(+ : tasks)
        tasks += 10;
    }
    CHECK(tasks == 11 * omp_get_max_threads());
    tasks = 0;
#pragma omp parallel
    {
#pragma omp for reduction(task, + : tasks) schedule(dynamic)
        for (int i = 0; i < 30; i++) {
#pragma omp task in_reduction(+ : tasks)
            tasks += i;
        }
#pragma omp for reduction(task, + : tasks)
        for (int i = 0; i < 30; i++) {
#pragma omp task in_reduction(+ : tasks)
            tasks += i;
        }
#pragma omp sections reduction(task, + : tasks)
        {
#pragma omp section
            {
#pragma omp task in_reduction(+ : tasks)
                tasks += 5;
            }
        }
// clang cannot compile `scope` yet.
#ifdef __clang__
#pragma omp atomic
        tasks++;
#else
#pragma omp scope reduction(task, + : tasks)
        {
#pragma omp task in_reduction(+ : tasks)
            tasks += 1;
        }
#endif
    }
    CHECK(tasks == 2 * 435 + 5 + omp_get_max_threads());
}

static void events(void) {
    for (int round = 0; round < 20; round++) {
        int x = 0, seen = 0;
        omp_event_handle_t event;
#pragma omp parallel
#pragma omp single
        {
#pragma omp task detach(event) depend(out : x) shared(x)
            x = 1;
#pragma omp task depend(in : x) shared(x, seen)
            seen = x;
#pragma omp task firstprivate(event)
            omp_fulfill_event(event);
#pragma omp taskwait
            CHECK(seen == 1);
        }
    }
    /* Fulfilled inside the task, in a team of one, and before the body ends. */
    omp_event_handle_t event;
    int done = 0;
#pragma omp task detach(event) shared(done)
    {
        done = 1;
        omp_fulfill_event(event);
    }
#pragma omp taskwait
    CHECK(done == 1);
    CHECK(omp_get_max_task_priority() == 10);
    int order = 0, first = -1;
#pragma omp parallel num_threads(2)
#pragma omp single
    for (int i = 0; i < 10; i++) {
#pragma omp task priority(i) shared(order, first)
        {
#pragma omp atomic
            order++;
            first = i;
        }
    }
    CHECK(order == 10 && first >= 0);
}

/* Teams of changing size, one right after the other: nobody executes another region's tasks. */
static void changing_teams(void) {
    for (int round = 0; round < 400; round++) {
        int sum = 0, size = 1 + round * 7 % 5;
#pragma omp parallel num_threads(size) reduction(task, + : sum)
        for (int i = 0; i < 4; i++) {
#pragma omp task in_reduction(+ : sum) firstprivate(size)
            {
                CHECK(omp_get_num_threads() == size && omp_get_thread_num() < size);
                sum += 1;
            }
        }
        CHECK(sum == 4 * size);
    }
}

int main(void) {
    changing_teams();
    recursion();
    many();
    dependences();
    groups();
    loops();
    reductions();
    events();
    return result();
}
