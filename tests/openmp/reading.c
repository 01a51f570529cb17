/* All workers read one file inside a region: each through a stream and a descriptor of its own, all through one descriptor at
 * places of their own, and all through one whose place they share. Into memory of all kinds. ARGV[1] is the number of
 * records. */
#define _GNU_SOURCE
#include "check.h"
#include "spin.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD = 512, CHUNK = 8 };

struct record {
    unsigned long word[RECORD / sizeof(unsigned long)];
};

static long records;
static struct record *shared;
static char path[] = "/tmp/reading-XXXXXX";

static void fill(struct record *r, long which) {
    for (unsigned long w = 0; w < sizeof r->word / sizeof *r->word; w++)
        r->word[w] = mixed((unsigned long)which * RECORD + w);
}

static int is_right(const struct record *r, long which) {
    struct record expected;
    fill(&expected, which);
    return !memcmp(r, &expected, sizeof expected);
}

static int write_file(void) {
    struct record r;
    int to = mkstemp(path);
    if (to < 0)
        return 0;
    FILE *file = fdopen(to, "w");
    for (long i = 0; i < records; i++) {
        fill(&r, i);
        if (fwrite(&r, sizeof r, 1, file) != 1)
            return 0;
    }
    return fclose(file) == 0;
}

/* Every worker reads all of it, onto its stack. */
static void each_by_a_stream(void) {
    long wrong = 0, read_all = 0;
#pragma omp parallel reduction(+ : wrong, read_all)
    {
        struct record mine;
        FILE *file = fopen(path, "r");
        if (file) {
            for (long i = 0; fread(&mine, sizeof mine, 1, file) == 1; i++) {
                wrong += !is_right(&mine, i);
                read_all++;
            }
            if (fseek(file, (records / 2) * RECORD, SEEK_SET) == 0 && fread(&mine, sizeof mine, 1, file) == 1)
                wrong += !is_right(&mine, records / 2);
            else
                wrong++;
            fclose(file);
        }
    }
    CHECK(wrong == 0 && read_all == records * omp_get_max_threads());
}

static void check_shared(void) {
    long wrong = 0;
    for (long i = 0; i < records; i++)
        wrong += !is_right(&shared[i], i);
    CHECK(wrong == 0);
    memset(shared, 0, (size_t)records * sizeof *shared);
}

/* Each worker reads its part through a descriptor of its own, into memory of all. */
static void each_by_a_descriptor(void) {
    long failed = 0;
#pragma omp parallel reduction(+ : failed)
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        long first = records * me / threads, end = records * (me + 1) / threads;
        int from = open(path, O_RDONLY);
        struct stat about;
        failed += fstat(from, &about) != 0 || about.st_size != records * RECORD;
        failed += lseek(from, first * RECORD, SEEK_SET) != first * RECORD;
        char *to = (char *)&shared[first];
        for (long left = (end - first) * RECORD; left > 0;) {
            ssize_t got = read(from, to, (size_t)left);
            if (got <= 0) {
                failed++;
                break;
            }
            to += got;
            left -= got;
        }
        close(from);
    }
    CHECK(failed == 0);
    check_shared();
}

/* One descriptor, opened before the region; places of their own, many in a page: where workers share a page table, a neighbour's
 * fault took the page's mapping away for a moment, and a call that needed it then failed with EFAULT. */
static void all_by_one_descriptor(int from) {
    long failed = 0;
#pragma omp parallel for schedule(dynamic, 5) reduction(+ : failed)
    for (long i = 0; i < records; i++)
        failed += pread(from, &shared[i], RECORD, i * RECORD) != RECORD;
    CHECK(failed == 0);
    check_shared();
}

/* One descriptor and one place in it: who reads next gets what comes next, and puts it where it says. */
static void all_by_one_place(int from) {
    long failed = 0, next = 0;
    lseek(from, 0, SEEK_SET);
#pragma omp parallel reduction(+ : failed)
    for (int more = 1; more;) {
#pragma omp critical
        {
            long count = records - next < CHUNK ? records - next : CHUNK;
            more = count > 0;
            if (more)
                failed += read(from, &shared[next], (size_t)count * RECORD) != count * RECORD;
            next += count;
        }
    }
    CHECK(failed == 0 && next == records);
    CHECK(lseek(from, 0, SEEK_CUR) == records * RECORD);
    check_shared();
}

/* Opened by one worker, read by all after it. */
static void opened_inside(void) {
    long wrong = 0;
    int from = -1;
#pragma omp parallel reduction(+ : wrong)
    {
        struct record mine;
        long at = records * omp_get_thread_num() / omp_get_num_threads();
#pragma omp single
        from = open(path, O_RDONLY);
        if (pread(from, &mine, sizeof mine, at * RECORD) != RECORD || !is_right(&mine, at))
            wrong++;
    }
    CHECK(wrong == 0);
    close(from);
}

int main(int argc, char **argv) {
    records = size_of(argc, argv, 400);
    shared = calloc((size_t)records, sizeof *shared);
    if (!write_file()) {
        fprintf(stderr, "skipped: no temporary file\n");
        return 0;
    }
    each_by_a_stream();
    each_by_a_descriptor();
    int from = open(path, O_RDONLY);
    all_by_one_descriptor(from);
    all_by_one_place(from);
    close(from);
    opened_inside();
    unlink(path);
    free(shared);
    return result();
}
