/* printf from every worker, into a pipe: whole lines, program order within a worker and between regions. */
#include "check.h"
#include <omp.h>
#include <sched.h>
static int next[64];
int main(void)
{
    FILE *f = tmpfile(), *opened = 0;
    for (int round = 0; round < 20; round++) {
        fprintf(f, "before %d\n", round);
#pragma omp parallel num_threads(4)
        for (int i = 0; i < 50; i++) {
            fprintf(f, "%d %d %d %s\n", round, omp_get_thread_num(), i, "a line that is long enough to be cut in two if locks fail");
            if (i % 10 == 0) {
                flockfile(f);
                fputs("two ", f);
                sched_yield();
                fputs("parts\n", f);
                funlockfile(f);
            }
        }
        fprintf(f, "after %d\n", round);
    }
    rewind(f);
    char line[200];
    int round = -1, inside = 0, lines = 0, parts = 0;
    while (fgets(line, sizeof line, f)) {
        int r, t, i, end = 0;
        if (sscanf(line, "before %d", &r) == 1) {
            CHECK(!inside && r == round + 1);
            round = r, inside = 1;
            memset(next, 0, sizeof next);
        } else if (sscanf(line, "after %d", &r) == 1) {
            CHECK(inside && r == round);
            inside = 0;
        } else if (!strcmp(line, "two parts\n"))
            parts++;
        else {
            CHECK(sscanf(line, "%d %d %d a line that is long enough to be cut in two if locks fail%n", &r, &t, &i, &end) == 3 && line[end] == '\n');
            CHECK(inside && r == round && next[t]++ == i);
            lines++;
        }
    }
    CHECK(lines == 4000 && parts == 400);
    fclose(f);
    /* A stream opened by one worker is usable in all, closed by another, or left to exit. */
#pragma omp parallel num_threads(4)
    {
        if (omp_get_thread_num() == 2) {
            opened = fopen("shared", "w");
            f = fopen("left", "w");
            fputs("left to exit", f);
        }
#pragma omp barrier
        fprintf(opened, "%d\n", omp_get_thread_num());
#pragma omp barrier
        if (omp_get_thread_num() == 3)
            CHECK(fclose(opened) == 0);
    }
    CHECK(system("test $(sort shared | tr -d '\\n') = 0123") == 0);
    CHECK(fflush(0) == 0 && system("test \"$(cat left)\" = 'left to exit'") == 0);
#pragma omp parallel for ordered num_threads(4)
    for (int i = 0; i < 8; i++) {
#pragma omp ordered
        printf("ordered %d\n", i);
    }
    puts("good");
}
