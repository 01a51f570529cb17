// Four threads write to all pages of a table, each to words of its own: some pages often, most of them seldom. Now and then a thread only
// reads pages for a while, so that they come clean, then writes to one it has read, or moves a word by system calls. A model of
// each thread's words says at the end whether a write is lost.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4, PAGES = 6 << 10, WORDS = PAGES * 512, STEPS = 60000 };

static uint64_t *table;
static volatile uint64_t ignored;

static uint64_t next(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

// A word of the thread's own: three in four are in a twentieth of the pages.
static size_t word(uint64_t x, size_t me) {
    size_t page = x % 4 ? (x >> 8) % (PAGES / 20) * 20 : (x >> 8) % PAGES;
    return page * 512 + (x >> 40) % (512 / THREADS) * THREADS + me;
}

static void move(uint64_t *to, const uint64_t *from, const int *ends) {
    if (write(ends[1], from, 8) != 8 || read(ends[0], to, 8) != 8) {
        perror("a word was not moved");
        exit(1);
    }
}

// Does the thread's steps in `in`, the table or a model of it.
static void work(uint64_t *in, size_t me, const int *ends) {
    uint64_t x = 88172645463325252u + me * 7919, sum = 0;
    for (int step = 0; step < STEPS; step++) {
        size_t at = word(next(&x), me);
        switch (next(&x) % 16) {
        case 0:
            for (int i = 0; i < 8; i++) {
                sum += in[at = word(next(&x), me)];
            }
            in[at] += 3;
            break;
        case 1:
            if (ends) {
                move(&in[word(next(&x), me)], &in[at], ends);
            } else {
                in[word(next(&x), me)] = in[at];
            }
            break;
        default:
            in[at] = in[at] * 5 + x % 7;
        }
    }
    ignored += sum;
}

static void *run(void *me) {
    int ends[2];
    if (pipe(ends)) {
        perror("no pipe");
        exit(1);
    }
    work(table, (size_t)me, ends);
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

int main(void) {
    table = malloc(WORDS * 8);
    uint64_t *model = malloc(WORDS * 8);
    for (size_t i = 0; i < WORDS; i++) {
        table[i] = model[i] = i;
    }
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, run, (void *)i);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    size_t lost = 0;
    for (size_t i = 0; i < THREADS; i++) {
        work(model, i, NULL);
    }
    for (size_t i = 0; i < WORDS; i++) {
        lost += table[i] != model[i];
    }
    printf("%zu words are wrong\n", lost);
    return lost != 0;
}
