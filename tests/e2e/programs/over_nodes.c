/* What strangers' programs did on several nodes and went wrong; each part checks itself. Runs with any team of two or more. */
#define _GNU_SOURCE
#include "e2e.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* A file that is mapped shared ended the program by SIGSEGV. */
static void mapped_file(void) {
    enum { N = 1 << 17 };
    char name[] = "over-nodes-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, N * sizeof(long)) == 0);
    long *words = mmap(NULL, N * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(words != MAP_FAILED);
#pragma omp parallel for
    for (long i = 0; i < N; i++) words[i] = mix(i);
    for (long i = 0; i < N; i += 1000) {
        long there = 0;
        CHECK(pread(fd, &there, sizeof there, i * sizeof there) == sizeof there && there == (long)mix(i));
    }
    munmap(words, N * sizeof(long));
    close(fd);
}

/* A region in a target construct in a region lost iterations. */
static void target_in_a_region(void) {
    static int times[1000];
    enum { ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp parallel
#pragma omp single
        {
#pragma omp target map(tofrom : times)
#pragma omp parallel for num_threads(4)
            for (int i = 0; i < 1000; i++) times[i]++;
        }
    }
    for (int i = 0; i < 1000; i++) CHECK(times[i] == ROUNDS);
}

/* Workers of other nodes saw team 0 of 1; limits were counted on each node by itself, and teams waited for ever. */
static void leagues(void) {
    int seen[2][4] = {{0}}, wrong = 0;
#pragma omp teams num_teams(2) thread_limit(4)
#pragma omp parallel num_threads(4)
    {
        int team = omp_get_team_num();
#pragma omp atomic
        wrong += omp_get_num_teams() != 2 || omp_get_thread_limit() != 4 || team > 1;
#pragma omp atomic
        seen[team & 1][omp_get_thread_num() & 3]++;
    }
    for (int team = 0; team < 2; team++)
        for (int thread = 0; thread < 4; thread++) CHECK(seen[team][thread] == 1);
    CHECK(wrong == 0);
}

/* teams thread_limit(2) inside target inside a region gave one thread. */
static void a_limit_in_a_target(void) {
    int threads = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
    {
#pragma omp target map(tofrom : threads)
#pragma omp teams num_teams(1) thread_limit(2)
#pragma omp parallel num_threads(2)
#pragma omp atomic
        threads++;
    }
    CHECK(threads == 2);
}

/* A flag that is spun on beside a single without a barrier made the program wait for ever: two nodes' threads each took
 * themselves for the first to come. */
static void a_flag_beside_a_single(void) {
    for (int round = 0; round < 20; round++) {
        volatile int ready = 0;
        int ran = 0;
#pragma omp parallel
        {
#pragma omp single nowait
            {
#pragma omp atomic
                ran++;
                ready = 1;
            }
            while (!ready) {}
        }
        CHECK(ran == 1);
    }
}

/* Of constructs without a barrier between them one was nobody's: a thread came to the next while its node's first one waited. */
static void singles_side_by_side(void) {
    enum { CONSTRUCTS = 4 };
    for (int round = 0; round < 20; round++) {
        int ran[CONSTRUCTS] = {0};
        int arrived = 0;
#pragma omp parallel
        {
            int here = 0;
#pragma omp atomic
            arrived++;
            while (here < omp_get_num_threads()) {
#pragma omp atomic read
                here = arrived;
            }
            if (omp_get_thread_num() % 2 == 0) usleep(15000);
#pragma omp single nowait
#pragma omp atomic
            ran[0]++;
#pragma omp single nowait
#pragma omp atomic
            ran[1]++;
#pragma omp single nowait
#pragma omp atomic
            ran[2]++;
#pragma omp single nowait
#pragma omp atomic
            ran[3]++;
        }
        for (int i = 0; i < CONSTRUCTS; i++) CHECK(ran[i] == 1);
    }
}

/* Guided chunks were other than what the standard says: each at most the iterations left over the threads, rounded up. */
static void guided(void) {
    enum { N = 3000 };
    static int chunk[N];
    int threads = 0, chunks = 0;
#pragma omp parallel
    {
        int before = -2;
#pragma omp single
        threads = omp_get_num_threads();
#pragma omp for schedule(guided)
        for (int i = 0; i < N; i++) {
            if (i != before + 1) {
                chunk[i] = 1;
#pragma omp atomic
                chunks++;
            }
            before = i;
        }
    }
    /* Chunks of one thread that lie side by side count as one here, so a chunk may only seem to be larger. */
    CHECK(chunks >= 1 && chunk[0] == 1 && threads >= 1);
    int steps = 0;
    for (int left = N; left > 0; left -= (left + threads - 1) / threads) steps++;
    CHECK(chunks <= steps);
}

/* Allocators that the program makes were refused on other nodes. */
static void allocators(void) {
    omp_alloctrait_t traits[] = {{omp_atk_alignment, 256}, {omp_atk_pool_size, 1 << 20}, {omp_atk_fallback, omp_atv_null_fb}};
    omp_allocator_handle_t handle = omp_init_allocator(omp_default_mem_space, 3, traits);
    CHECK(handle != omp_null_allocator);
    int wrong = 0;
#pragma omp parallel reduction(+ : wrong)
    {
        char *block = omp_alloc(1000, handle);
        wrong += block == NULL || (uintptr_t)block % 256 != 0;
        if (block) memset(block, omp_get_thread_num(), 1000);
#pragma omp barrier
        for (int i = 0; block && i < 1000; i++) wrong += block[i] != (char)omp_get_thread_num();
        omp_free(block, omp_null_allocator);
    }
    CHECK(wrong == 0);
    omp_destroy_allocator(handle);
}

/* Blocks that libc makes for the program were refused on other nodes. */
static void blocks_of_libc(void) {
    char *copy = strdup("made by the first thread"), *text = NULL;
    CHECK(asprintf(&text, "%s, %d", copy, 42) > 0);
    int wrong = 0;
    char *made[64] = {NULL};
#pragma omp parallel reduction(+ : wrong)
    {
        wrong += strcmp(copy, "made by the first thread") != 0 || strcmp(text, "made by the first thread, 42") != 0;
        int me = omp_get_thread_num();
        if (me < 64) wrong += asprintf(&made[me], "thread %d", me) <= 0;
    }
    CHECK(wrong == 0);
    for (int i = 0; i < 64 && made[i]; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "thread %d", i);
        CHECK(strcmp(made[i], expected) == 0);
        free(made[i]);
    }
    free(copy);
    free(text);
}

/* Locks and conditions of pthreads woke threads of their own node only. */
static void pthread_objects(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t all_here = PTHREAD_COND_INITIALIZER;
    static int here, sum;
#pragma omp parallel
    {
        int threads = omp_get_num_threads();
        pthread_mutex_lock(&mutex);
        sum += omp_get_thread_num();
        if (++here == threads) pthread_cond_broadcast(&all_here);
        while (here < threads) pthread_cond_wait(&all_here, &mutex);
        pthread_mutex_unlock(&mutex);
    }
    int threads = here;
    CHECK(sum == threads * (threads - 1) / 2);
}

/* A stream that the origin opened was refused on other nodes. */
static void streams(void) {
    FILE *file = tmpfile();
    CHECK(file != NULL);
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < 40; i++) fprintf(file, "%03d\n", i);
    rewind(file);
    int seen = 0, value;
    while (fscanf(file, "%d", &value) == 1) seen += value;
    CHECK(seen == 40 * 39 / 2);
    fclose(file);
}

int main(void) {
    omp_set_max_active_levels(3);
    mapped_file();
    target_in_a_region();
    leagues();
    a_limit_in_a_target();
    a_flag_beside_a_single();
    singles_side_by_side();
    guided();
    allocators();
    blocks_of_libc();
    pthread_objects();
    streams();
    return verdict();
}
