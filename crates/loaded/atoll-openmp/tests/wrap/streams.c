/* Streams: what is written arrives in order, whatever lies in paged memory. */
#include "check.h"
#include <wchar.h>
static char *large;
int main(void)
{
    large = malloc(LARGE);
    memset(large, 'x', LARGE);
    large[3000000] = 0;
    FILE *f = fopen("text", "w+");
    CHECK(f);
    push_out();
    CHECK(fprintf(f, "<%s>\n", large) == 3000003);
    push_out();
    CHECK(fputs(large, f) >= 0 && putc('\n', f) == '\n');
    push_out();
    CHECK(dprintf(fileno(f), "%s", "") == 0 && fflush(f) == 0 && dprintf(fileno(f), "[%s]\n", large) == 3000003);
    rewind(f);
    char *line = 0;
    size_t n = 0;
    CHECK(getline(&line, &n, f) == 3000003 && line[0] == '<' && line[3000001] == '>');
    CHECK(fgets(large + 4000000, 5000000, f) && strlen(large + 4000000) == 3000001);
    CHECK(fscanf(f, "[%5s", large + 8000000) == 1 && !strcmp(large + 8000000, "xxxxx"));
    CHECK(getdelim(&line, &n, ']', f) == 3000000 - 4);
    CHECK(fseek(f, -2, SEEK_END) == 0 && fgetc(f) == ']' && ungetc('!', f) == '!' && getc(f) == '!');
    CHECK(ftell(f) == 3000003 + 3000001 + 3000003 - 1);
    /* A buffer of the program's in paged memory. */
    CHECK((f = freopen("second", "w", f)) != 0);
    CHECK(setvbuf(f, large + 9000000, _IOFBF, 1000000) == 0);
    for (int i = 0; i < 300000; i++)
        fprintf(f, "%d\n", i);
    push_out();
    CHECK(fclose(f) == 0);
    CHECK((f = fopen("second", "r")) != 0);
    for (int i = 0, k; i < 300000; i++)
        CHECK(fscanf(f, "%d", &k) == 1 && k == i);
    fclose(f);
    char *memory;
    CHECK((f = open_memstream(&memory, &n)) != 0 && fprintf(f, "%d-%s", 7, "seven") == 7 && fclose(f) == 0);
    CHECK(n == 7 && !strcmp(memory, "7-seven"));
    CHECK((f = fmemopen(memory, 7, "r")) != 0 && fgetc(f) == '7' && fclose(f) == 0);
    CHECK((f = tmpfile()) != 0 && fwprintf(f, L"%ls", L"wide") == 4 && fclose(f) == 0);
    flockfile(stdout);
    CHECK(ftrylockfile(stdout) == 0);
    funlockfile(stdout);
    funlockfile(stdout);
    /* One buffer: what comes through different functions keeps its order. */
    printf("%d ", 1);
    fputs("2 ", stdout);
    putchar('3');
    fwrite(" 4 ", 1, 3, stdout);
    fprintf(stdout, "%.1f ", 5.0);
    putc('\n', stdout);
    fflush(stdout);
    CHECK(write(1, "6\n", 2) == 2);
    char *buffered = "7, never flushed by the program\n";
    CHECK(fileno(stdout) == 1 && fileno(stderr) == 2 && fileno(stdin) == 0);
    CHECK(getchar() == EOF);
    puts("good");
    f = fopen("unflushed", "w");
    fputs("left to exit", f);
    fputs(buffered, stdout);
    return 0;
}
