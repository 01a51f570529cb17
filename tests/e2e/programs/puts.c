/* Nothing but puts, from every worker at once: a line and its end are one. */
#include "e2e.h"

int main(int argc, char **argv) {
    int lines = argc > 1 ? atoi(argv[1]) : 20000;
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < lines; i++) {
        char text[80];
        snprintf(text, sizeof text, "line %d", i);
        puts(text);
    }
    return 0;
}
