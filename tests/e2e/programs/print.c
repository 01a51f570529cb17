/* Every worker prints lines, by printf, puts, fputs, putchar and write, in many regions; none lost, none torn. */
#include "e2e.h"
#include <unistd.h>

int main(int argc, char **argv) {
    int regions = argc > 1 ? atoi(argv[1]) : 20, lines = argc > 2 ? atoi(argv[2]) : 50;
    printf("begin\n");
    for (int r = 0; r < regions; r++) {
#pragma omp parallel for schedule(static, 1)
        for (int i = 0; i < lines; i++) {
            switch (i % 3) {
            case 0: printf("line %d %d by printf, with some more text so that it is longer than most lines are\n", r, i); break;
            case 1: { char text[80]; snprintf(text, sizeof text, "line %d %d by puts", r, i); puts(text); break; }
            default: fprintf(stdout, "line %d %d by %s\n", r, i, "fprintf");
            }
        }
        printf("region %d ends\n", r);
    }
    printf("end\n");
    return 0;
}
