/* A matrix whose rows are blocks of their own, and structures with a lock in each: most data in small blocks. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3000, COLUMNS = 1500, CELLS = 3000 };

struct cell {
    pthread_mutex_t lock;
    long sum;
    char room[4000];
};

int main(void) {
    double **rows = malloc(ROWS * sizeof *rows);
    struct cell **cells = malloc(CELLS * sizeof *cells);
#pragma omp parallel for
    for (int i = 0; i < ROWS; i++) {
        rows[i] = calloc(COLUMNS, sizeof **rows);
        for (int j = 0; j < COLUMNS; j++) rows[i][j] += i + j;
    }
    for (int i = 0; i < CELLS; i++) {
        cells[i] = malloc(sizeof **cells);
        pthread_mutex_init(&cells[i]->lock, NULL);
        cells[i]->sum = 0;
        memset(cells[i]->room, i & 127, sizeof cells[i]->room);
    }
    double sum = 0;
    for (int pass = 0; pass < 2; pass++) {
#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 7)
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < COLUMNS; j++) sum += rows[i][j];
            struct cell *cell = cells[i * 31 % CELLS];
            pthread_mutex_lock(&cell->lock);
            cell->sum += i;
            pthread_mutex_unlock(&cell->lock);
        }
        for (int i = 0; i < ROWS; i++) {
            rows[i] = realloc(rows[i], (COLUMNS + (pass ? -700 : 200)) * sizeof **rows);
            for (int j = COLUMNS; !pass && j < COLUMNS + 200; j++) rows[i][j] = 0;
        }
    }
    long cells_sum = 0;
    for (int i = 0; i < CELLS; i++) {
        for (size_t k = 0; k < sizeof cells[i]->room; k++)
            if (cells[i]->room[k] != (i & 127)) return 1;
        cells_sum += cells[i]->sum;
    }
    /* Straight from and into a block by system calls, and through a buffer of libc's. */
    char *line = malloc(5000);
    FILE *self = fopen("/proc/self/status", "r");
    size_t got = fread(line, 1, 5000, self);
    fclose(self);
    double expected = 2.0 * ((double)COLUMNS * ROWS * (ROWS - 1) / 2 + (double)ROWS * COLUMNS * (COLUMNS - 1) / 2);
    long cells_expected = 2L * ROWS * (ROWS - 1) / 2;
    for (int i = 0; i < ROWS; i++) free(rows[i]);
    for (int i = 0; i < CELLS; i++) free(cells[i]);
    if (sum != expected || cells_sum != cells_expected || got < 100) {
        printf("%f %f %ld %ld %zu\n", sum, expected, cells_sum, cells_expected, got);
        return 1;
    }
    puts("all well");
    return 0;
}
