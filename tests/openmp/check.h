/* What the test programs share: a check that says where it failed, and the exit status. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static int failures;

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            _Pragma("omp critical(check)") if (failures++ < 20)                                                \
                fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                        \
        }                                                                                                      \
    } while (0)

static int result(void) {
    if (failures)
        fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
