/* Calls of LLVM's runtime that clang makes seldom or never, but that compilers before it and beside it make: by name. */
#include <complex.h>
#include <omp.h>
#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            _Pragma("omp atomic") failures++;                                                                          \
            printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                                             \
        }                                                                                                              \
    } while (0)

/* A place as compilers describe it; without the flag for reductions by atomic operations. */
static struct {
    int reserved, flags, more[2];
    const char *text;
} place = {0, 2, {0, 0}, ";unknown;unknown;0;0;;"};

void __kmpc_fork_call(void *, int, void *, ...);
void __kmpc_fork_call_if(void *, int, void *, int, void *);
void __kmpc_push_num_threads(void *, int, int);
int __kmpc_global_thread_num(void *);
int __kmpc_sections_init(void *, int);
int __kmpc_next_section(void *, int, int);
void __kmpc_end_sections(void *, int);
void __kmpc_barrier(void *, int);
int __kmpc_barrier_master(void *, int);
void __kmpc_end_barrier_master(void *, int);
void *__kmpc_threadprivate_cached(void *, int, void *, size_t, void ***);
int __kmpc_reduce(void *, int, int, size_t, void *, void *, int *);
void __kmpc_end_reduce(void *, int, int *);
void __kmpc_dispatch_init_8u(void *, int, int, unsigned long, unsigned long, long, long);
int __kmpc_dispatch_next_8u(void *, int, int *, unsigned long *, unsigned long *, long *);
void __kmpc_atomic_float10_add(void *, int, long double *, long double);
void __kmpc_atomic_cmplx8_mul(void *, int, double complex *, double complex);
double complex __kmpc_atomic_cmplx8_sub_cpt(void *, int, double complex *, double complex, int);
void __kmpc_atomic_cmplx4_add_cpt(void *, int, float complex *, float complex, float complex *, int);
long __kmpc_atomic_fixed8_sub_cpt_rev(void *, int, long *, long, int);
void __kmpc_atomic_float4_min(void *, int, float *, float);
void __kmpc_atomic_fixed4_mul_float8(void *, int, int *, double);
void __kmpc_atomic_16(void *, int, void *, void *, void (*)(void *, void *, void *));
void __kmpc_atomic_2(void *, int, void *, void *, void (*)(void *, void *, void *));
void *kmp_malloc(size_t);
void *kmp_aligned_malloc(size_t, size_t);
void kmp_free(void *);
int kmp_get_blocktime(void);
void kmp_set_blocktime(int);

static int sum;
static int kept = 7;
static void **cache;

static void many(int *thread, int *bound, long *a, long b, char *c, int *d, long *e, long f, short *g, long h, int *i) {
    CHECK(*bound == omp_get_thread_num() && *thread == __kmpc_global_thread_num(&place));
    CHECK(*a == 1 && b == 2 && *c == 'c' && *d == 4 && *e == 5 && f == -6 && *g == 7 && h == 8);
#pragma omp atomic
    *i += 1;
}

static void none(int *thread, int *bound) {
    CHECK(omp_get_num_threads() == 3 && *bound < 3);
    (void)thread;
#pragma omp atomic
    sum++;
}

static void forks(void) {
    long a = 1, e = 5;
    char c = 'c';
    int d = 4, count = 0;
    short g = 7;
    __kmpc_fork_call(&place, 9, (void *)many, &a, 2L, &c, &d, &e, -6L, &g, 8L, &count);
    CHECK(count == omp_get_max_threads());
    __kmpc_push_num_threads(&place, __kmpc_global_thread_num(&place), 3);
    __kmpc_fork_call(&place, 0, (void *)none);
    CHECK(sum == 3);
}

static void alone(int *thread, int *bound, int *seen) {
    (void)thread, (void)bound;
#pragma omp atomic
    *seen += omp_get_num_threads();
}

static void conditions(void) {
    int seen = 0, n = omp_get_max_threads();
    __kmpc_fork_call_if(&place, 1, (void *)alone, 0, &seen);
    CHECK(seen == 1);
    __kmpc_fork_call_if(&place, 1, (void *)alone, 1, &seen);
    CHECK(seen == 1 + n * n);
}

static void twice(void *to, void *from, void *by) {
    __int128 value = *(__int128 *)from * *(__int128 *)by;
    *(__int128 *)to = value;
}

static void thrice(void *to, void *from, void *by) { *(short *)to = *(short *)from + *(short *)by; }

static void atomics(void) {
    long double ten = 0;
    double complex product = 1, difference = 0;
    float complex pairs = 0;
    long flips = 5;
    float least = 100;
    int scaled = 1;
    __int128 power = 1, two = 2;
    short shorts = 0, one = 1;
    int n = omp_get_max_threads();
#pragma omp parallel
    {
        int thread = __kmpc_global_thread_num(&place);
        for (int i = 0; i < 100; i++) {
            float complex out;
            __kmpc_atomic_float10_add(&place, thread, &ten, 0.5L);
            __kmpc_atomic_cmplx8_mul(&place, thread, &product, I);
            __kmpc_atomic_cmplx8_sub_cpt(&place, thread, &difference, 1 + I, 1);
            __kmpc_atomic_cmplx4_add_cpt(&place, thread, &pairs, 1 - 2 * I, &out, 0);
            __kmpc_atomic_fixed8_sub_cpt_rev(&place, thread, &flips, 12, 1);
            __kmpc_atomic_float4_min(&place, thread, &least, (float)(i - omp_get_thread_num()));
            __kmpc_atomic_2(&place, thread, &shorts, &one, thrice);
        }
        __kmpc_atomic_fixed4_mul_float8(&place, thread, &scaled, 2.0);
        for (int i = 0; i < 12; i++)
            __kmpc_atomic_16(&place, thread, &power, &two, twice);
    }
    CHECK(ten == 50.0L * n && product == (100 * n % 4 ? product : 1) && difference == -100.0 * n * (1 + I));
    CHECK(pairs == 100.0f * n * (1 - 2 * I) && (flips == 5 || flips == 7) && least == (float)(1 - n));
    CHECK(shorts == 100 * n && scaled == 1 << n && power == (__int128)1 << (12 * n));
}

static int *mine(void) {
    return __kmpc_threadprivate_cached(&place, __kmpc_global_thread_num(&place), &kept, sizeof kept, &cache);
}

static void copies(void) {
    CHECK(mine() == &kept && *mine() == 7);
#pragma omp parallel
    {
        CHECK(*mine() == 7);
        *mine() += omp_get_thread_num();
    }
#pragma omp parallel
    CHECK(*mine() == 7 + omp_get_thread_num());
    CHECK(kept == 7);
}

static void shared_out(void) {
    static int lock[8];
    int done[5] = {0}, total = 0, iterations = 0, lasts = 0, first = 0;
#pragma omp parallel
    {
        int thread = __kmpc_global_thread_num(&place);
        for (int round = 0; round < 3; round++) {
            __kmpc_sections_init(&place, thread);
            for (int at; (at = __kmpc_next_section(&place, thread, 5)) < 5;) {
#pragma omp atomic
                done[at]++;
            }
            __kmpc_end_sections(&place, thread);
            __kmpc_barrier(&place, thread);
        }
        if (__kmpc_barrier_master(&place, thread)) {
            first = 1;
            __kmpc_end_barrier_master(&place, thread);
        }
        CHECK(first == 1);
        int way = __kmpc_reduce(&place, thread, 1, sizeof total, &total, 0, lock);
        CHECK(way == 1);
        total += omp_get_thread_num() + 1;
        __kmpc_end_reduce(&place, thread, lock);
        CHECK(total == omp_get_num_threads() * (omp_get_num_threads() + 1) / 2);
        /* Dynamic, with chunks that are never joined, over the largest numbers. */
        unsigned long lower, upper;
        long step;
        int last;
        __kmpc_dispatch_init_8u(&place, thread, 163 | 1 << 30, ~0ul - 99, ~0ul, 3, 4);
        while (__kmpc_dispatch_next_8u(&place, thread, &last, &lower, &upper, &step)) {
#pragma omp atomic
            iterations += (int)((upper - lower) / 3 + 1);
#pragma omp atomic
            lasts += last;
        }
    }
    for (int i = 0; i < 5; i++)
        CHECK(done[i] == 3);
    CHECK(iterations == 34 && lasts == 1);
}

static void routines(void) {
    char *block = kmp_malloc(100), *aligned = kmp_aligned_malloc(100, 256);
    CHECK(block && aligned && (size_t)aligned % 256 == 0);
    kmp_free(block);
    kmp_free(aligned);
    kmp_set_blocktime(17);
    CHECK(kmp_get_blocktime() == 17);
    omp_nest_lock_t locks[2];
    omp_init_nest_lock(&locks[0]);
    omp_init_nest_lock(&locks[1]);
    for (int i = 1; i < 4; i++)
        CHECK(omp_test_nest_lock(&locks[0]) == i && omp_test_nest_lock(&locks[1]) == i);
    omp_destroy_nest_lock(&locks[0]);
    omp_destroy_nest_lock(&locks[1]);
}

/* All threads wait for a task that none of them would come to otherwise. */
static void yields(void) {
    int done = 0;
#pragma omp parallel
    {
#pragma omp master
        {
#pragma omp task shared(done)
            {
#pragma omp atomic write
                done = 1;
            }
        }
        for (int seen = 0; !seen;) {
#pragma omp taskyield
#pragma omp atomic read
            seen = done;
        }
    }
}

int main(void) {
    yields();
    forks();
    conditions();
    atomics();
    copies();
    shared_out();
    routines();
    return failures != 0;
}
