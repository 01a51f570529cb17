/* All workers print, with printf, puts, fputs and write: every line arrives, whole, and those of one worker in order. The
 * standard output is a file while they do, which is read again. ARGV[1] is the number of rounds of each worker. */
#include "check.h"
#include "spin.h"
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 64, KINDS = 3 };

static long rounds;
/* Rounds seen of each worker and way of printing. */
static long seen[MOST_THREADS][KINDS];

static void print(int me, long round) {
    char line[80];
    printf("printf %d %ld of %ld %.3f %s.\n", me, round, rounds, (double)round / 8, "some words to make it longer");
    snprintf(line, sizeof line, "puts %d %ld of %ld 0 and more.", me, round, rounds);
    puts(line);
    snprintf(line, sizeof line, "fputs %d %ld of %ld 0 and more.\n", me, round, rounds);
    fputs(line, stdout);
}

static void read_again(FILE *file, int threads) {
    static const char *const kinds[KINDS] = {"printf", "puts", "fputs"};
    char line[256], kind[16];
    long lines = 0, torn = 0, disordered = 0;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        int me, k = 0;
        long round, all;
        size_t length = strlen(line);
        lines++;
        if (sscanf(line, "%15s %d %ld of %ld", kind, &me, &round, &all) != 4 || line[length - 1] != '\n' || line[length - 2] != '.') {
            torn++;
            continue;
        }
        while (k < KINDS && strcmp(kind, kinds[k]))
            k++;
        if (k == KINDS || me < 0 || me >= threads || all != rounds) {
            torn++;
            continue;
        }
        disordered += seen[me][k]++ != round;
    }
    CHECK(lines == KINDS * rounds * threads);
    CHECK(torn == 0 && disordered == 0);
}

int main(int argc, char **argv) {
    rounds = size_of(argc, argv, 150);
    FILE *file = tmpfile();
    if (!file) {
        fprintf(stderr, "skipped: no temporary file\n");
        return 0;
    }
    fflush(stdout);
    int kept = dup(1);
    dup2(fileno(file), 1);
    int threads = 1;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
        for (long round = 0; round < rounds; round++)
            print(omp_get_thread_num(), round);
    }
    fflush(stdout);
    dup2(kept, 1);
    close(kept);
    read_again(file, threads);
    fclose(file);
    return result();
}
