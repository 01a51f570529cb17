/* System V shared memory: attached by the first thread, by another one, and detached again; used by all threads. */
#include "e2e.h"
#include <sys/ipc.h>
#include <sys/shm.h>

enum { BYTES = 3 << 20 };

static uint64_t *attach(int *id) {
    *id = shmget(IPC_PRIVATE, BYTES, 0600);
    uint64_t *at = shmat(*id, NULL, 0);
    CHECK(at != (void *)-1);
    /* The segment is removed when the last one detaches it. */
    shmctl(*id, IPC_RMID, NULL);
    return at;
}

static void use(uint64_t *words, int round) {
#pragma omp parallel for
    for (int i = 0; i < BYTES / 8; i++)
        words[i] = mix(i + round);
    uint64_t sum = 0;
#pragma omp parallel for schedule(static, 7) reduction(+ : sum)
    for (int i = 0; i < BYTES / 8; i++)
        sum += words[i] == mix(i + round);
    CHECK(sum == BYTES / 8);
}

int main(void) {
#pragma omp parallel
    CHECK(omp_get_num_threads() > 0);
    for (int round = 0; round < 3; round++) {
        int id;
        uint64_t *words = attach(&id);
        if (words == (void *)-1) return verdict();
        use(words, round);
        uint64_t *second = shmat(id, NULL, SHM_RDONLY);
        CHECK(second != words && second[5] == mix(5 + round));
        CHECK(shmdt(second) == 0 && shmdt(words) == 0 && shmdt(words) == -1);
    }
    uint64_t *of_another = NULL;
    int id;
#pragma omp parallel
    {
        if (omp_get_thread_num() == omp_get_num_threads() - 1)
            of_another = attach(&id);
    }
    use(of_another, 9);
    return verdict();
}
