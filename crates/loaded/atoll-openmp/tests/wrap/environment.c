#include "check.h"
extern char **environ;
int main(void)
{
    char *p = malloc(LARGE);
    CHECK(setenv("A_VARIABLE", "1", 1) == 0 && !strcmp(getenv("A_VARIABLE"), "1"));
    CHECK(setenv("A_VARIABLE", "2", 0) == 0 && !strcmp(getenv("A_VARIABLE"), "1"));
    strcpy(p, "IN_PAGED=3");
    CHECK(putenv(p) == 0 && getenv("IN_PAGED") == p + 9);
    CHECK(unsetenv("A_VARIABLE") == 0 && !getenv("A_VARIABLE"));
    for (int i = 0; i < 1000; i++) {
        char name[20];
        sprintf(name, "V%d", i);
        CHECK(setenv(name, name, 1) == 0);
    }
    push_out();
    CHECK(!strcmp(getenv("V999"), "V999") && system("test $V500 = V500 && test $IN_PAGED = 3") == 0);
    CHECK(!getenv("LD_PRELOAD") && !getenv("ATOLL_CONTROL_FD"));
    CHECK(clearenv() == 0 && !getenv("V1"));
    puts("good");
}
