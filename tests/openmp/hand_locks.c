/* Locks that a program writes for itself, inline, around plain counters in several pages: test and set, test and test and
 * set, compare and swap, tickets, a queue (Mellor-Crummey and Scott), and Peterson's for two, which has no atomic
 * read-modify-write at all. ARGV[1] is the number of rounds of each thread. */
#include "check.h"
#include "spin.h"
#include <string.h>

enum { PAGE = 4096, COUNTERS = 6, MOST_THREADS = 64 };

/* Plain data, a page apart, and two that are always equal outside the lock. */
static struct {
    volatile long value;
    char apart[PAGE - sizeof(long)];
} counter[COUNTERS];
static long left, right;
static long rounds;

static volatile int taken;
static struct {
    volatile unsigned next;
    volatile unsigned served;
} tickets;
struct waiter {
    struct waiter *volatile next;
    volatile int waits;
    char apart[64 - sizeof(void *) - sizeof(int)];
};
static struct waiter *volatile last;
static struct waiter waiters[MOST_THREADS];

static void take_by_test_and_set(void) {
    struct waiting w = {0};
    while (__sync_lock_test_and_set(&taken, 1))
        spin(&w);
}

static void take_by_looking_first(void) {
    struct waiting w = {0};
    while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE))
        while (taken)
            spin(&w);
}

static void take_by_compare_and_swap(void) {
    struct waiting w = {0};
    for (int free = 0; !__atomic_compare_exchange_n(&taken, &free, 1, 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED); free = 0)
        spin(&w);
}

static void let_go(void) { __sync_lock_release(&taken); }

static void take_ticket(void) {
    struct waiting w = {0};
    unsigned mine = __atomic_fetch_add(&tickets.next, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&tickets.served, __ATOMIC_ACQUIRE) != mine)
        spin(&w);
}

static void serve_next(void) { __atomic_store_n(&tickets.served, tickets.served + 1, __ATOMIC_RELEASE); }

static void queue_up(void) {
    struct waiter *me = &waiters[omp_get_thread_num()];
    struct waiting w = {0};
    me->next = NULL;
    me->waits = 1;
    struct waiter *before = __atomic_exchange_n(&last, me, __ATOMIC_ACQ_REL);
    if (!before)
        return;
    __atomic_store_n(&before->next, me, __ATOMIC_RELEASE);
    while (__atomic_load_n(&me->waits, __ATOMIC_ACQUIRE))
        spin(&w);
}

static void leave_queue(void) {
    struct waiter *me = &waiters[omp_get_thread_num()], *expected = me;
    struct waiting w = {0};
    if (!me->next && __atomic_compare_exchange_n(&last, &expected, NULL, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        return;
    while (!__atomic_load_n(&me->next, __ATOMIC_ACQUIRE))
        spin(&w);
    __atomic_store_n(&me->next->waits, 0, __ATOMIC_RELEASE);
}

static volatile int wants[2], turn;

static void take_as_one_of_two(void) {
    int me = omp_get_thread_num();
    struct waiting w = {0};
    wants[me] = 1;
    turn = !me;
    __sync_synchronize();
    while (wants[!me] && turn != me)
        spin(&w);
}

static void let_the_other(void) {
    __sync_synchronize();
    wants[omp_get_thread_num()] = 0;
}

/* Every thread adds to every counter, and to a list of its own that the others read. */
static void exclude(void (*take)(void), void (*give)(void), int threads) {
    long unequal = 0, all = 0;
    memset((void *)counter, 0, sizeof counter);
    left = right = 0;
#pragma omp parallel num_threads(threads) reduction(+ : unequal, all)
    for (long i = 0; i < rounds; i++) {
        take();
        for (int c = 0; c < COUNTERS; c++)
            counter[c].value = counter[c].value + 1;
        unequal += left != right;
        left += i + 1;
        right += i + 1;
        give();
        all++;
    }
    for (int c = 0; c < COUNTERS; c++)
        CHECK(counter[c].value == all);
    CHECK(unequal == 0 && left == right && all == rounds * threads && left == rounds * (rounds + 1) / 2 * threads);
}

int main(int argc, char **argv) {
    rounds = size_of(argc, argv, 3000);
    int threads = omp_get_max_threads();
    exclude(take_by_test_and_set, let_go, threads);
    exclude(take_by_looking_first, let_go, threads);
    exclude(take_by_compare_and_swap, let_go, threads);
    exclude(take_ticket, serve_next, threads);
    exclude(queue_up, leave_queue, threads);
    if (threads >= 2)
        exclude(take_as_one_of_two, let_the_other, 2);
    return result();
}
