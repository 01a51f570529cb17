// Tasks that a node with nothing to do may execute for another: recursion over variables of the maker's stack, dependences, groups,
// task loops, tasks made by all threads between barriers, memory that one task allocates and another frees.
#include "check.h"
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 16, ROUNDS = 20 };

static volatile uint64_t ignored;

static uint64_t work(uint64_t seed, int steps) {
    for (int step = 0; step < steps; step++)
        seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed;
}

// Results come back in variables of the maker's stack.
static long fib(int n) {
    if (n < 2)
        return n;
    long a, b;
#pragma omp task shared(a) if (n > 12)
    a = fib(n - 1);
#pragma omp task shared(b) if (n > 12)
    b = fib(n - 2);
#pragma omp taskwait
    return a + b;
}

static void recursion(void) {
    long result = 0;
#pragma omp parallel
#pragma omp single
    result = fib(24);
    CHECK(result == 46368);
}

static uint64_t keys[N], space[N];

static void sort(uint64_t *a, uint64_t *room, int n) {
    if (n <= 512) {
        for (int i = 1; i < n; i++) {
            uint64_t x = a[i];
            int j = i;
            for (; j > 0 && a[j - 1] > x; j--)
                a[j] = a[j - 1];
            a[j] = x;
        }
        return;
    }
    int half = n / 2;
#pragma omp task
    sort(a, room, half);
#pragma omp task
    sort(a + half, room + half, n - half);
#pragma omp taskwait
    int i = 0, j = half, k = 0;
    while (i < half && j < n)
        room[k++] = a[i] <= a[j] ? a[i++] : a[j++];
    while (i < half)
        room[k++] = a[i++];
    while (j < n)
        room[k++] = a[j++];
    memcpy(a, room, n * sizeof *a);
}

static void sorting(void) {
    uint64_t sum = 0, after = 0;
    for (int i = 0; i < N; i++)
        sum += keys[i] = work(i, 3);
#pragma omp parallel
#pragma omp single nowait
    sort(keys, space, N);
    for (int i = 0; i < N; i++)
        after += keys[i];
    CHECK(sum == after);
    for (int i = 1; i < N; i++)
        CHECK(keys[i - 1] <= keys[i]);
}

// All threads make tasks, between barriers; neighbours' results are read in the next round.
static void rounds(void) {
    static uint64_t from[256], to[256];
    uint64_t expected[256], next[256];
    for (int i = 0; i < 256; i++)
        expected[i] = from[i] = i;
#pragma omp parallel
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp for nowait
        for (int i = 0; i < 256; i++) {
#pragma omp task firstprivate(i)
            to[i] = work(from[i] + from[(i + 1) % 256], 2000);
        }
#pragma omp barrier
#pragma omp for
        for (int i = 0; i < 256; i++)
            from[i] = to[i];
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 256; i++)
            next[i] = work(expected[i] + expected[(i + 1) % 256], 2000);
        memcpy(expected, next, sizeof next);
    }
    for (int i = 0; i < 256; i++)
        CHECK(from[i] == expected[i]);
}

// A wavefront by dependences.
static void wavefront(void) {
    enum { SIDE = 24 };
    static uint64_t cells[SIDE + 1][SIDE + 1];
    uint64_t expected[SIDE + 1][SIDE + 1];
    memset(cells, 0, sizeof cells);
    memset(expected, 0, sizeof expected);
#pragma omp parallel
#pragma omp single
    for (int i = 1; i <= SIDE; i++)
        for (int j = 1; j <= SIDE; j++) {
#pragma omp task depend(in : cells[i - 1][j], cells[i][j - 1]) depend(out : cells[i][j])
            cells[i][j] = work(cells[i - 1][j] ^ (cells[i][j - 1] + i), 3000);
        }
    for (int i = 1; i <= SIDE; i++)
        for (int j = 1; j <= SIDE; j++)
            expected[i][j] = work(expected[i - 1][j] ^ (expected[i][j - 1] + i), 3000);
    CHECK(memcmp(cells, expected, sizeof cells) == 0);
}

// Lists that tasks allocate, each link by another, and that others free.
struct link {
    struct link *next;
    uint64_t value;
    char rest[200];
};

static void lists(void) {
    static struct link *heads[64];
    uint64_t sum = 0, expected = 0;
#pragma omp parallel
    {
#pragma omp single
        for (int round = 0; round < 8; round++) {
            for (int i = 0; i < 64; i++) {
#pragma omp task firstprivate(i, round)
                {
                    struct link *link = malloc(sizeof *link);
                    link->next = heads[i];
                    link->value = work(i + 64 * round, 500);
                    memset(link->rest, round, sizeof link->rest);
                    heads[i] = link;
                }
            }
#pragma omp taskwait
        }
#pragma omp single
#pragma omp taskgroup
        for (int i = 0; i < 64; i++) {
#pragma omp task firstprivate(i)
            while (heads[i]) {
                struct link *link = heads[i];
                heads[i] = link->next;
                uint64_t value = link->value;
                free(link);
#pragma omp atomic
                sum += value;
            }
        }
    }
    for (int i = 0; i < 64 * 8; i++)
        expected += work(i, 500);
    CHECK(sum == expected);
}

static void loops(void) {
    static uint64_t values[N];
    uint64_t sum = 0, expected = 0;
    int count = 0;
#pragma omp parallel
#pragma omp single
    {
#pragma omp taskloop grainsize(256) shared(values)
        for (int i = 0; i < N; i++)
            values[i] = work(i, 20);
#pragma omp taskloop num_tasks(40) shared(sum, count)
        for (int i = 0; i < 4000; i++) {
            uint64_t value = work(i, 20);
#pragma omp critical
            {
                sum += value;
                count++;
            }
        }
    }
    for (int i = 0; i < N; i++)
        CHECK(values[i] == work(i, 20));
    for (int i = 0; i < 4000; i++)
        expected += work(i, 20);
    CHECK(count == 4000 && sum == expected);
}

// A queue of work that tasks put more into, with large arguments by value.
struct board {
    int n, row;
    signed char columns[40];
};

static int queens(struct board board) {
    if (board.row == board.n)
        return 1;
    int counts[16] = {0}, sum = 0;
    for (int column = 0; column < board.n; column++) {
        int fits = 1;
        for (int row = 0; row < board.row && fits; row++)
            fits = board.columns[row] != column && abs(board.columns[row] - column) != board.row - row;
        if (!fits)
            continue;
        struct board next = board;
        next.columns[next.row++] = (signed char)column;
#pragma omp task firstprivate(next, column) shared(counts) final(next.row > 3)
        counts[column] = queens(next);
    }
#pragma omp taskwait
    for (int column = 0; column < board.n; column++)
        sum += counts[column];
    return sum;
}

static void boards(void) {
    int count = 0;
#pragma omp parallel
#pragma omp master
    count = queens((struct board){.n = 9});
    CHECK(count == 352);
}

// Tasks use the variables that the task which makes them has for itself.
struct row {
    long values[20];
};

static long tree(int depth, struct row row) {
    if (depth == 0) {
        long sum = (long)(work(1, 500) & 0);
        for (int i = 0; i < 20; i++)
            sum += row.values[i];
        return sum;
    }
    long x = 0, y = 0;
#pragma omp task shared(x) firstprivate(row, depth)
    {
        row.values[depth]++;
        long p = 0, q = 0;
#pragma omp task shared(row, p)
        p = tree(depth - 1, row);
#pragma omp task shared(row, q)
        q = tree(depth - 1, row);
#pragma omp taskwait
        x = p + q;
    }
#pragma omp task shared(y) firstprivate(row, depth)
    {
        row.values[depth] += 2;
#pragma omp task shared(row, y)
        y = tree(depth - 1, row);
#pragma omp taskwait
    }
#pragma omp taskwait
    return x + y;
}

static void variables(void) {
    long sum = 0;
#pragma omp parallel
#pragma omp single
    sum = tree(6, (struct row){{0}});
    CHECK(sum == 5832);
}

// Each thread counts what it executes; the numbers are those of the whole team.
static void numbers(void) {
    int done[256] = {0}, wrong = 0, total = 0;
#pragma omp parallel
#pragma omp single
    for (int i = 0; i < 500; i++) {
#pragma omp task
        {
            int me = omp_get_thread_num();
            if (me < 0 || me >= omp_get_num_threads() || omp_in_parallel() != (omp_get_num_threads() > 1)) {
#pragma omp atomic
                wrong++;
            } else {
#pragma omp atomic
                done[me]++;
            }
            ignored = work(i, 1000);
        }
    }
    for (int i = 0; i < 256; i++)
        total += done[i];
    CHECK(wrong == 0 && total == 500);
}

int main(void) {
    for (int round = 0; round < 3; round++) {
        recursion();
        sorting();
        rounds();
        wavefront();
        lists();
        loops();
        boards();
        variables();
        numbers();
    }
    return result();
}
